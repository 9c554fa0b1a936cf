"""Shows the scores of a model for a recording, as a picture and as a table."""
