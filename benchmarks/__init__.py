"""Ratios of the service to the least code that does the same work, measured in the same minutes; see README.md."""
