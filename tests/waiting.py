"""Waits for events in another process, or in another task of the same loop."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(value: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Return the first true value; AssertionError if there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := value()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
        time.sleep(0.05)
    return found


async def turn() -> None:
    """Let the loop run everything that is ready."""
    for _ in range(8):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition is true; TimeoutError if it is not within `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (anything may make it true)
            await asyncio.sleep(0.002)
