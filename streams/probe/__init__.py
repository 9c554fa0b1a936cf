"""Decodes the beginning of untrusted recordings, in processes that may die of it."""
