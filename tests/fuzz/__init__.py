"""Fuzzing: all untrusted input, and everything read back from disk or the log.

`make fuzz MINUTES=5` runs all targets; `python -m tests.fuzz --target records` one. Findings are written to
`tests/fuzz/corpus`, and every `make test` runs its files.
"""
