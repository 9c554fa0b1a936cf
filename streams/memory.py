"""Memory that the C library keeps for itself, and processes that the machine ends for want of memory."""

import ctypes
from pathlib import Path
from typing import Final

_COUNTS: Final = Path("/proc/vmstat")


def trim_heap() -> None:
    """Return freed memory to the system by malloc_trim(3), where the C library has it.

    glibc keeps some 30 MB of what a start throws away.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def ended_for_it() -> int:
    """Return how many processes this machine has ended for memory; 0 where that is not known."""
    try:
        lines = _COUNTS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
