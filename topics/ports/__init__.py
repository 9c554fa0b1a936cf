"""Protocols between the rooms, one a file: the edge's view of the streams and of the control plane."""
