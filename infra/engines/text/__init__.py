"""Text by rules: the endpoint, and what it says of sounds."""
