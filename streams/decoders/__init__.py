"""Decodes untrusted audio, in processes that may crash."""
