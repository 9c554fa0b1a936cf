"""Jobs: folding their records, and running their services outside the agents."""
