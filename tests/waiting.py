"""Waiting for what happens in its own time: in another process, or in another task of the same loop."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(value: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Return the first value that is true; AssertionError when there was none for so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := value()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
        time.sleep(0.05)
    return found


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become true; TimeoutError when it did not for so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (anything may make it true)
            await asyncio.sleep(0.002)
