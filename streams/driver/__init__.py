"""Who owns which partition: the group of nodes, and Faust's assignor, the only thing of Faust that is imported."""
