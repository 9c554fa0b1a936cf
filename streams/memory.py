"""How much memory there may be, what the C library retains, and processes that the kernel killed for lack of it."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from streams.control_groups import ROOT, control_groups

_COUNTS: Final = Path("/proc/vmstat")


def allowed(root: Path = ROOT) -> int:
    """Return how many bytes this process and its children may use: the machine's, or a control group's limit."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group, is_2 in control_groups("memory", root):
        with suppress(OSError, ValueError):  # "max" is no number, and no limit.
            found.append(int((group / ("memory.max" if is_2 else "memory.limit_in_bytes")).read_text()))
    return min(found)


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
