"""What a process has freed and its C library keeps."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give the kernel what glibc keeps of freed memory (malloc_trim(3)); other C libraries keep little."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
