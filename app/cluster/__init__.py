"""Access to other nodes' partitions: forwarded requests, and lists that are merged from all nodes."""
