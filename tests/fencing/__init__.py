"""Nodes that are paused, cut off or slow: nothing of theirs may land behind what a later owner wrote."""
