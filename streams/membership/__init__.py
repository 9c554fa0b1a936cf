"""Who owns which partition: the group of nodes, and Faust's assignor."""
