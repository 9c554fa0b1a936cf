"""A semaphore with a bounded queue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from topics.errors import Unavailable

MAX_WAITING: Final = 64


class AdmissionSemaphore:
    """Admits up to `limit` callers at a time, in order of arrival; refuses if too many wait. Loop only."""

    def __init__(self, limit: int) -> None:
        self._semaphore = asyncio.Semaphore(limit)
        self._waiting = 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Wait for a place and hold it; raise Unavailable if too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many such requests wait already")
        self._waiting += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._semaphore.release()
