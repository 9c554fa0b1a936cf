"""Protocols between the rooms, one per file: the edge's view of the streams and of the control plane."""
