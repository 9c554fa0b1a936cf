"""A project's own view and changes of itself."""
