"""Who asks: keys, what the database says of them, and the requests that carry them."""
