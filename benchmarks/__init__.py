"""Ratios of the service to the least that could do the same work, measured in the same minutes; see README.md."""
