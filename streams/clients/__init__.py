"""Clients of engines in other programs, by HTTP and public protocols."""
