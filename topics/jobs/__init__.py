"""Jobs: whole recordings that several services analyse; their options, records, rules and rows."""
