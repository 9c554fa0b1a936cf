"""Voices to vectors: the endpoint, and the speaker model."""
