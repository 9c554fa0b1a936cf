"""Voices: finds who speaks when, from speaker embeddings and voice activity."""
