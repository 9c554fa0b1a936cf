"""The edge: HTTP in front of the audio sessions."""
