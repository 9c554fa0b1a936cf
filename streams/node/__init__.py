"""The partitions that this process owns, put together behind the ports of the edge."""
