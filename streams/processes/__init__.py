"""Child processes that may crash: how they start, what they may do, and how they end."""
