"""A project's access to its own settings and usage."""
