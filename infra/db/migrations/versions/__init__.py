"""Migrations of the control plane's tables, one file each."""
