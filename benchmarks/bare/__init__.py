"""The least that could do the same work: what the ratios divide by, each in a process of its own."""
