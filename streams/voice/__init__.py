"""Voices: who speaks and when, by speaker embeddings and voice activity."""
