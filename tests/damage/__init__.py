"""Damage to a stopped data directory, a file at a time: a start refuses, or all that was acknowledged is there."""
