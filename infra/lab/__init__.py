"""Measures and makes models; no service imports it."""
