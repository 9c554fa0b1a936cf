"""Fuzzing: everything that strangers can send, and everything that is read back from disk or the log.

`make fuzz MINUTES=5` runs all targets; `python -m tests.fuzz --target records` one. What it finds is written to
`tests/fuzz/corpus`, whose files are run by every `make test`.
"""
