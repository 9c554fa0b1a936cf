"""Voices to vectors: the endpoint, and the model of a speaker."""
