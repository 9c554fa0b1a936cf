"""What a model hears in a recording, as a picture and as a table."""
