"""Audio sessions: their records, rules and rows."""
