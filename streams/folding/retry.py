"""How long to wait before a retry, the same for work on sessions, services of jobs, bills, and a log that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from topics.errors import Unavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)

#: After the first failure in a row; twice as long after each further one.
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 5.0


def pause(failures: int, longest: float | None = None) -> float:
    """Return the seconds to wait after `failures` failures in a row, at least 1 and at most `longest`."""
    doublings = min(failures - 1, 16)
    return min(LONGEST_SECONDS if longest is None else longest, FIRST_SECONDS * 2.0**doublings)


async def until_available(ask: Callable[[], Awaitable[T]]) -> T:
    """Return what `ask` returns, asked again after pauses while the log is away."""
    failures = 0
    while True:
        try:
            return await ask()
        except Unavailable as error:
            failures += 1
            log.warning("log.away", error=str(error))
            await asyncio.sleep(pause(failures))
