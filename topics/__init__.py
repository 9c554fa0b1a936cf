"""The language of the service: log records, their codec, keys, and the pure rules over them."""
