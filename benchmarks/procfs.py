"""Figures of processes from Linux's /proc: CPU seconds, memory, bytes written."""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> set[int]:
    """Return the ids of a process and all its living descendants."""
    pids = {pid}
    for children in PROC.glob(f"{pid}/task/*/children"):
        for child in children.read_text().split():
            pids |= descendants(int(child))
    return pids


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user and system seconds of processes and all their descendants, ended children included."""
    return sum(_cpu_seconds(one) for pid in pids for one in descendants(pid))


def _cpu_seconds(pid: int) -> float:
    # The name in parentheses may contain spaces; utime, stime, cutime and cstime are fields 14 to 17.
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def thread_seconds(pid: int) -> dict[int, float]:
    threads = (PROC / str(pid) / "task").iterdir()
    return {int(one.name): int((one / "schedstat").read_text().split()[0]) / 1e9 for one in threads}


def resident_bytes(pid: int) -> int:
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, counting shared pages proportionally."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def family_bytes(pid: int) -> int:
    """Return the memory of a process and all its descendants in bytes, counting shared pages once."""
    total = 0
    for one in descendants(pid):
        with suppress(ProcessLookupError, FileNotFoundError):  # The process has just ended.
            total += proportional_bytes(one)
    return total


def command(pid: int) -> bytes:
    """Return the arguments of a process, each terminated by a NUL."""
    return (PROC / str(pid) / "cmdline").read_bytes()


def written_bytes(pid: int) -> int:
    """Return the bytes that one process caused to be written to storage."""
    lines = (PROC / str(pid) / "io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def machine() -> str:
    lines = (PROC / "cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{len(os.sched_getaffinity(0))} cores ({model}), load average {load}"
