"""Protocols between the rooms, one a file: what the edge asks of the streams and of the control plane."""
