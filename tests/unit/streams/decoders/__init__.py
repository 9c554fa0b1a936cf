"""Tests of the process that looks into recordings."""
