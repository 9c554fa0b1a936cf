"""Nodes that are paused, cut off or slow must not write after a later owner."""
