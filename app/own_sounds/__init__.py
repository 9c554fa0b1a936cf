"""Sounds that a project teaches: marks, lessons, what a sound would have found, and whether it is reported."""
