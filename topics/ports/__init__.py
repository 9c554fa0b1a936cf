"""The sockets in the walls, one a file: what the edge asks of the streams and of the control plane."""
