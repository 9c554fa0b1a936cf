"""The sessions: folding their records, and analysing their audio."""
