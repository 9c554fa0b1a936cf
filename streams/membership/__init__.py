"""Which node owns each partition: the group of nodes, and Faust's assignor."""
