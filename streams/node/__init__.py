"""The partitions that this process owns, and the ports through which the edge uses them."""
