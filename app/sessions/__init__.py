"""Audio sessions over HTTP: commands, status reads, page tokens."""
