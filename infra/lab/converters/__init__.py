"""Converters from published files to models: recipes for bare graphs, YAMNet, and quantised Whisper."""
