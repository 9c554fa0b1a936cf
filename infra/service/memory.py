"""Memory that the C library keeps for itself."""

from __future__ import annotations

import ctypes


def trim_heap() -> None:
    """Return freed memory to the system by malloc_trim(3), if the C library has it.

    glibc keeps some 30 MB that a start no longer needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
