"""Decodes what strangers send, in processes that may die of it."""
