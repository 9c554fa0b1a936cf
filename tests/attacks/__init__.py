"""Attacks on a running service, beside clients that notice nothing of them."""
