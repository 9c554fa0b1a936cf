"""Several lanes on one machine: one port, one answer, and what happens if one of them dies."""
