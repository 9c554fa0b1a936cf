"""Freed memory that the C library retains, and processes that the kernel killed for lack of memory."""

import ctypes
from pathlib import Path
from typing import Final

_COUNTS: Final = Path("/proc/vmstat")


def trim_heap() -> None:
    """Return freed memory to the system by malloc_trim(3), if the C library has it.

    glibc retains some 30 MB after a start.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def ended_for_it() -> int:
    """Return how many processes the kernel has killed for lack of memory; 0 if unknown."""
    try:
        lines = _COUNTS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
