"""Registered speakers: enrols their voices and finds them in recordings."""
