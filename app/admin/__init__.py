"""The operator's interface: organizations, projects, keys, plans and usage."""
