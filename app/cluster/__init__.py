"""What other nodes own: forwarded requests, and lists that are merged from all nodes."""
