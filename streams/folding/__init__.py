"""Records folded into rows: what sessions and jobs share."""
