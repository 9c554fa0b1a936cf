"""Sounds that a project teaches: marks, learning, trial results, and switching reports on or off."""
