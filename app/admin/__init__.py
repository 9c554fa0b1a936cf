"""The operator's interface: organizations, projects, their keys and plans, and what was used."""
