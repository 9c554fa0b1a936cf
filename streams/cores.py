"""How many cores this process may use, and how soon a thread gets one."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from streams.control_groups import ROOT, control_groups

#: Seconds of a core that the threads that clients wait for get at a time, while others want it too.
LOOP_SLICE: Final = 0.0001
#: `struct sched_attr`, the number of its system call, and the flag that keeps children and new threads from inheriting.
_ATTRIBUTES: Final = "IIQiIQQQII"
_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK: Final = 1


def usable(root: Path = ROOT) -> int:
    """Return the number of cores that the system allows, at least 1.

    The scheduler's mask bounds it, and the quota of processor time of the control group, rounded: 1.5 cores are 2.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota + 0.5) for quota in _quotas(root))]))


def wake_promptly(slice_s: float) -> None:
    """Let this thread, when it wakes up, interrupt threads with longer slices of a core; it gets no more time by that.

    Linux does so from 6.12 on; elsewhere this has no effect.
    """
    if os.uname().sysname == "Linux" and (number := _SET_ATTRIBUTES.get(platform.machine())) is not None:
        size, nice = struct.calcsize(_ATTRIBUTES), os.getpriority(os.PRIO_PROCESS, 0)
        fields = size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, int(slice_s * 1e9), 0, 0, 0, 0
        ctypes.CDLL(None).syscall(number, 0, struct.pack(_ATTRIBUTES, *fields), 0)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas, in cores, of this process's control groups and those around them."""
    for group, is_2 in control_groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            yield _quota_of_2(group) if is_2 else _quota_of_1(group)


def _quota_of_2(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text().split()
    return int(quota) / int(period)  # "max" is no number, and no quota.


def _quota_of_1(group: Path) -> float:
    quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    if quota < 0:
        raise ValueError("no quota")
    return quota / period
