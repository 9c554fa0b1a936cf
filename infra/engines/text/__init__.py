"""Text by rules: the endpoint, and the sentences about sounds."""
