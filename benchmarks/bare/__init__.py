"""The least code that does the same work: the denominators of the ratios, each a separate process."""
