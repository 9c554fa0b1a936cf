"""Registered speakers: enrolling their voices, and finding them in recordings."""
