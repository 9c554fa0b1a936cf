"""Trains the bundled models, and heads for further tags."""
