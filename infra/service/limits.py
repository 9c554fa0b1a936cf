"""Checks the machine's limits on this process before it listens, and sets one."""

import resource
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from infra.service import listener
from topics.errors import ServiceError

#: Open files that are not client connections: tables, the log, spools, other nodes.
RESERVED_DESCRIPTORS: Final = 512
#: The fewest connections that make a service useful.
FEWEST_CONNECTIONS: Final = 64
#: Address space in bytes, and threads, that a small service needs. Idle, it uses two thirds of that address space.
ADDRESS_SPACE: Final = 3 * 1024**3
THREADS: Final = 64


def check() -> None:
    """Check that this process may use what a service needs.

    Raises:
        ServiceError: it may not; the message names the limit.
    """
    needed = RESERVED_DESCRIPTORS + FEWEST_CONNECTIONS
    if (allowed := listener.descriptors()) < needed:
        raise ServiceError(f"{allowed} open files are allowed (ulimit -n), at least {needed} are needed")
    (addresses, _) = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < ADDRESS_SPACE:
        mib, least = addresses >> 20, ADDRESS_SPACE >> 20
        raise ServiceError(f"{mib} MiB of addresses are allowed (ulimit -v), at least {least} are needed")
    if (started := _threads()) < THREADS:
        raise ServiceError(
            f"{started} more threads are allowed (ulimit -u, or pids.max of the control group), {THREADS} are needed"
        )


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
