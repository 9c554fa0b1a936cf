"""Retries calls of a process that is restarted when it dies, and may have died of one of the calls."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from streams.processes.deaths import DEATHS

T = TypeVar("T")


class Restarts:
    """Retries calls broken by a death, one at a time, so that none fails for the deaths that another causes.

    Each call is made at most `DEATHS` times. Loop only.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def call(self, make: Callable[[], Awaitable[T]], died: type[Exception]) -> T:
        """Return the result of `make`, which raises `died` if its call was broken; let the last such error pass."""
        with suppress(died):
            return await make()
        async with self._turn:
            for _ in range(DEATHS - 2):
                with suppress(died):
                    return await make()
            return await make()
