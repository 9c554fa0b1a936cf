"""A look into recordings of strangers, in a process that may die of it."""
