"""Nodes of two machines in one process, on a simulated log, tables, consumer group and clock, driven by a seed."""
