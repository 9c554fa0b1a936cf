"""What the agents do, as plain functions and objects that know neither Faust nor a socket."""
