"""Damages a stopped data directory, one file at a time: startup refuses, or all acknowledged data is there."""
