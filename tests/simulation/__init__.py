"""Three nodes in one process on a simulated log, table store, consumer group and clock, driven by a seed."""
