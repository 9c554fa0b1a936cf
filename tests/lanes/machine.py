"""A machine with several lanes, as a client and an operator see it."""

import re

import httpx2
import psutil

from tests.process import ServiceProcess, living

PARTITIONS = 8


def lane_processes(machine: ServiceProcess) -> list[psutil.Process]:
    """Return the processes of the lanes, by number, of those that run."""
    assert machine.process is not None
    children = living(psutil.Process(machine.process.pid))
    named = {one.name().removeprefix("lane "): one for one in children}
    return [named[name] for name in sorted(filter(str.isdigit, named), key=int)]


def templates(machine: ServiceProcess) -> list[psutil.Process]:
    """Return the processes from which lanes, and their zygotes, are forked."""
    assert machine.process is not None
    lanes = {one.pid for one in lane_processes(machine)}
    return [one for one in living(psutil.Process(machine.process.pid)) if one.pid not in lanes]


def metric(machine: ServiceProcess, name: str) -> float:
    """Return the sum of a metric of the machine."""
    text = httpx2.get(f"{machine.url}/metrics", timeout=60).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
