"""Migrations of the control plane's tables."""
