"""The documentation, checked strictly (`python -m tests.documentation`, part of `make check`) and run as written."""
