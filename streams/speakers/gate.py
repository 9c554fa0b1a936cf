"""A bound on what goes on at a time, and on what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from topics.errors import Unavailable

MOST_WAITING: Final = 64


class Gate:
    """Lets a few in at a time, in order; who comes when too many wait is sent away."""

    def __init__(self, places: int, most_waiting: int = MOST_WAITING) -> None:
        self._places = asyncio.Semaphore(places)
        self._most = most_waiting
        self._waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it.

        Raises:
            Unavailable: too many wait already.
        """
        if self._waiting >= self._most:
            raise Unavailable("too many recordings wait already")
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()
