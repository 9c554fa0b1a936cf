"""Identity: keys, the database's verdicts on them, and the requests that carry them."""
