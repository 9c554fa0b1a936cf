"""Assignment of partitions to nodes, by a consumer group and Faust's assignor."""
