"""Firewall rules for the connections of single processes on this machine; they need root, iptables, ss and cgroups."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import psutil

#: Control groups of version 2, alone or beside those of version 1.
PLACES: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
REFUSED: Final = ("-j", "REJECT", "--reject-with", "tcp-reset")
DROPPED: Final = ("-j", "DROP")

_numbers: Final = itertools.count()


@cache
def can_block() -> bool:
    """Return whether this process may make such rules here."""
    if not all(map(shutil.which, ("iptables", "ss"))):
        return False
    try:
        with blocked([], [1], REFUSED):
            return True
    except (OSError, StopIteration, subprocess.CalledProcessError):
        return False


@contextmanager
def blocked(processes: Iterable[int], ports: Iterable[int], fate: Iterable[str]) -> Iterator[None]:
    """End the connections of processes to ports of this machine as the other side would, and refuse or drop new ones.

    Raises:
        OSError, subprocess.CalledProcessError: The rights or the kernel's parts are missing.
    """
    root = next(place for place in PLACES if (place / "cgroup.controllers").exists())
    group = root / f"earshot-{os.getpid()}-{next(_numbers)}"
    processes, ports = list(processes), list(ports)
    rules = [["-p", "tcp", "--dport", f"{one}", "-m", "cgroup", "--path", group.name, *fate] for one in ports]
    made = []
    group.mkdir()
    try:
        for process in processes:
            (group / "cgroup.procs").write_text(str(process))
        for rule in rules:
            _run("iptables", "-w", "-I", "OUTPUT", *rule)
            made.append(rule)
        for process in processes:
            for one in psutil.Process(process).net_connections("tcp4"):
                if one.raddr and one.raddr.port in ports:
                    # From the other end, which then resets this one.
                    _run("ss", "-K", "-n", "src", f"127.0.0.1:{one.raddr.port}", "dst", f"127.0.0.1:{one.laddr.port}")
        yield
    finally:
        for rule in made:
            _run("iptables", "-w", "-D", "OUTPUT", *rule)
        for left in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(left)
        group.rmdir()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
