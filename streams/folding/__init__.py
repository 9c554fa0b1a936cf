"""Folding of records into rows, shared by sessions and jobs."""
