"""The rows of a partition in RocksDB, and the changelog that they come back from."""
