"""A durable, partitioned log in one RocksDB inside this process: the default log."""
