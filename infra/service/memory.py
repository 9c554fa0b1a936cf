"""Memory that the C library keeps for itself."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return what was freed to the system, where the C library can: glibc keeps some 30 MB of what a start throws away.

    See malloc_trim(3).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
