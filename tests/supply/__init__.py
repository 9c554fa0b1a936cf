"""What others wrote and we install: where it comes from, under which licence, and what is known against it."""
