"""What the other nodes own: requests that are passed on to them, and lists that are put together from all."""
