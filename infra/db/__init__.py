"""The control plane: organizations, projects and keys in SQLite or PostgreSQL."""
