"""Figures of processes: CPU seconds, memory, bytes written."""

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from streams import cores

PROC: Final = Path("/proc")


def descendants(pid: int) -> set[int]:
    """Return the ids of a process and all its living descendants."""
    return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}


def lanes(pid: int) -> list[int]:
    """Return the processes of the lanes of a supervisor, by number."""
    named = {one.name().removeprefix("lane "): one.pid for one in psutil.Process(pid).children()}
    return [named[name] for name in sorted(filter(str.isdigit, named), key=int)]


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user and system seconds of processes and all their descendants, ended children included."""
    times = [psutil.Process(one).cpu_times() for pid in pids for one in descendants(pid)]
    return float(sum(one.user + one.system + one.children_user + one.children_system for one in times))


def thread_seconds(pid: int) -> dict[int, float]:
    """Return the seconds of each thread of a process; psutil counts them in hundredths."""
    threads = (PROC / str(pid) / "task").iterdir()
    return {int(one.name): int((one / "schedstat").read_text().split()[0]) / 1e9 for one in threads}


def wake_ups(pid: int) -> int:
    """Return how often the first thread of a process has waited, for whatever."""
    return int(psutil.Process(pid).num_ctx_switches().voluntary)


def resident_bytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, counting shared pages proportionally."""
    return int(psutil.Process(pid).memory_full_info().pss)


def family_bytes(pid: int) -> int:
    """Return the memory of a process and all its descendants in bytes, counting shared pages once."""
    total = 0
    for one in descendants(pid):
        with suppress(psutil.NoSuchProcess):  # The process has just ended.
            total += proportional_bytes(one)
    return total


def written_bytes(pid: int) -> int:
    """Return the bytes that one process caused to be written to storage."""
    return int(psutil.Process(pid).io_counters().write_bytes)


def machine() -> str:
    lines = (PROC / "cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{cores.usable()} cores ({model}), load average {load}"
