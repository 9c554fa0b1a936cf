"""Pauses before retries of analyses, services of jobs, bills, and reads of an unavailable log."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from topics.errors import Unavailable

T = TypeVar("T")

log = structlog.get_logger(__name__)

#: The pause after the first failure in a row; it doubles after each further one.
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 5.0


def pause(failures: int, longest: float | None = None) -> float:
    """Return the seconds to wait, at most `longest`, after at least one failure in a row."""
    doublings = min(failures - 1, 16)
    return min(LONGEST_SECONDS if longest is None else longest, FIRST_SECONDS * 2.0**doublings)


async def until_available(ask: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `ask`; retry it after pauses while the log is unavailable."""
    failures = 0
    while True:
        try:
            return await ask()
        except Unavailable as error:
            failures += 1
            log.warning("log.away", error=str(error))
            await asyncio.sleep(pause(failures))
