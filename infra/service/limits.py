"""Checks the machine's limits on this process before it listens, and sets one."""

import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from app.admin.health import State
from infra.errors import Unfit, variable
from infra.service import listener
from infra.settings import Settings
from streams import memory

log = structlog.get_logger("infra.service")

#: Open files that are not client connections: tables, the log, spools, other nodes.
RESERVED_DESCRIPTORS: Final = 512
#: The fewest connections that make a service useful.
FEWEST_CONNECTIONS: Final = 64
#: Address space in bytes, and threads, that a small service needs. Idle, it uses two thirds of that address space.
ADDRESS_SPACE: Final = 3 * 1024**3
THREADS: Final = 64
#: Memory in MiB, measured in a control group on two cores with two jobs and a session. With less than the first, a
#: service with the smallest model starts, but its code no longer fits beside its data, and no window is done in time.
LEAST_MIB: Final = 256
ENOUGH_MIB: Final = 448
#: More of it for the bundled engines while they transcribe two conversations, and for each lane after the first.
ENGINES_MIB: Final = 832
LANE_MIB: Final = 100


def check(settings: Settings) -> None:
    """Check that this process may use what a service with these settings needs, and log what is tight.

    Raises:
        Unfit: it may not; the message names the limit.
    """
    needed = RESERVED_DESCRIPTORS + FEWEST_CONNECTIONS
    if (allowed := listener.descriptors()) < needed:
        raise Unfit(f"{allowed} open files are allowed (ulimit -n), at least {needed} are needed")
    (addresses, _) = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < ADDRESS_SPACE:
        mib, least = addresses >> 20, ADDRESS_SPACE >> 20
        raise Unfit(f"{mib} MiB of addresses are allowed (ulimit -v), at least {least} are needed")
    if (started := _threads()) < THREADS:
        raise Unfit(
            f"{started} more threads are allowed (ulimit -u, or pids.max of the control group), {THREADS} are needed"
        )

    # Lanes leave it to their supervisor.
    for state, text in memory_findings(settings) if settings.lane.count == 1 else ():
        if state == "bad":
            raise Unfit(text)
        log.warning("memory.tight", reason=text)


def memory_findings(settings: Settings) -> Iterator[tuple[State, str]]:
    """Yield what is wrong with the memory that this process, its lanes and children may use together."""
    allowed, saved = memory.allowed() >> 20, {}
    if settings.bundled_engines:
        saved["bundled_engines"] = f"false saves {ENGINES_MIB}"
    if others := settings.lane_count - 1:
        saved["lanes"] = f"1 saves {LANE_MIB * others}"
    enough = ENOUGH_MIB + ENGINES_MIB * settings.bundled_engines + LANE_MIB * others
    may = f"{allowed} MiB of memory are allowed (by the machine, or memory.max of its control group)"
    if allowed < LEAST_MIB:
        yield "bad", f"{may}, at least {LEAST_MIB} are needed"
    elif allowed < enough:
        ways = "".join(f"; {variable(field)}={way}" for field, way in saved.items())
        yield "slow", f"{may}, and these settings may use {enough}{ways}"


def forbid_core_dumps() -> None:
    """Have crashes of this process and its children leave no memory behind: it has keys, and audio.

    A handler in a pipe gets a dump in spite of the limit, so the dump is made empty too.
    """
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # Linux only.
        Path("/proc/self/coredump_filter").write_text("0")


def _threads() -> int:
    """Return how many of `THREADS` can run at once."""
    done = threading.Event()
    started: list[threading.Thread] = []
    with suppress(RuntimeError):  # `start` raises it if no more threads are allowed.
        for _ in range(THREADS):
            one = threading.Thread(target=done.wait)
            one.start()
            started.append(one)
    done.set()
    for one in started:
        one.join()
    return len(started)
