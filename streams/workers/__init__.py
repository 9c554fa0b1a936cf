"""Analyses audio in processes of its own, so that the event loop shares its interpreter with nobody."""
