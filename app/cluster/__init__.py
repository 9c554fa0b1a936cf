"""Access to other nodes' partitions: forwarded requests, and lists merged from all nodes."""
