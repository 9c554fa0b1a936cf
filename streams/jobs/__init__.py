"""Jobs: folds their records, and runs their services by an agent."""
