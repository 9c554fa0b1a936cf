"""Who asks: keys, what the directory says of them, and the requests that carry them."""
