"""Attacks on a running service, while other clients must notice nothing."""
