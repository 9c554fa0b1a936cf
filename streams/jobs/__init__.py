"""Jobs: folding their records, and running their services by an agent."""
