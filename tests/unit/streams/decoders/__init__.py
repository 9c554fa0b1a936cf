"""Tests of the decoder processes."""
