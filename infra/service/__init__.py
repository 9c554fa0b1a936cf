"""The composition root: takes settings and runs the service."""
