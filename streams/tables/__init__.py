"""The rows of a partition in RocksDB, rebuilt from the changelog if needed."""
