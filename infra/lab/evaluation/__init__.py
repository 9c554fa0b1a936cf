"""Measures models on labelled recordings, with the service's own analysis."""
