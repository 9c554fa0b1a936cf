"""The language of the service: records on the log, their codec, keys, and the pure rules over them."""
