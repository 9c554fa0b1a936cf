"""Models made of published files: recipes for bare graphs, YAMNet, and Whisper quantised."""
