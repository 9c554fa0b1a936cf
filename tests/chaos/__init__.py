"""Every fault that a cluster must survive, by seed, under clients whose answers are kept."""
