"""Agents that analyse audio and run services, the folds, the tables and the two logs."""
