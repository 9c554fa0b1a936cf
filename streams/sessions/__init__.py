"""What the agents of a session do, as plain functions and objects without Faust or sockets."""
