"""A bound on what is taken at a time, such as bytes in a queue, shared by projects in turn."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from topics.errors import Unavailable
from topics.turns import Turns

#: Callers that wait for something long, such as a recording to be read.
MOST_WAITING: Final = 64
#: A waiter and the size it needs.
Waiter = tuple[asyncio.Future[None], int]


class SharedQuota:
    """Admits up to `limit` at a time, or one larger thing; the rest wait in turn by project. Loop only."""

    def __init__(self, limit: int, most_waiting: float = math.inf) -> None:
        """Refuse callers while `most_waiting` others wait."""
        self.limit = limit
        self.used = 0
        self._most_waiting = most_waiting
        self._waiters = 0
        self._waiting: Turns[Waiter] = Turns()

    async def enter(self, project: str, size: int, deadline: float | None = None) -> None:
        """Reserve `size`, after earlier waiters of the same project; `leave` releases it.

        Raises:
            Unavailable: too many wait, or there was no room before the deadline, in the loop's time.
        """
        if not self._waiting and self._fits(size):
            self.used += size
            return
        if self._waiters >= self._most_waiting:
            raise Unavailable("too many such requests wait already")
        self._waiters += 1
        waiter = asyncio.get_running_loop().create_future(), size
        self._waiting.put(project, waiter)
        self._let_in()
        try:
            async with asyncio.timeout_at(deadline):
                await waiter[0]
        except TimeoutError:
            self._give_up(project, waiter)
            raise Unavailable("too many recordings are being uploaded") from None
        except asyncio.CancelledError:
            self._give_up(project, waiter)
            raise
        finally:
            self._waiters -= 1

    @asynccontextmanager
    async def admit(self, project: str) -> AsyncIterator[None]:
        """Hold one place; raise Unavailable if too many wait."""
        await self.enter(project, 1)
        try:
            yield
        finally:
            self.leave(1)

    def leave(self, size: int) -> None:
        self.used -= size
        self._let_in()

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit

    def _let_in(self) -> None:
        while (waiter := self._waiting.peek()) is not None:
            room, size = waiter
            if not room.done() and not self._fits(size):
                return
            self._waiting.take()
            if not room.done():  # Otherwise its caller gave up.
                self.used += size
                room.set_result(None)

    def _give_up(self, project: str, waiter: Waiter) -> None:
        room, size = waiter
        if room.done() and not room.cancelled():
            self.leave(size)  # It was admitted at the same moment.
            return
        self._waiting.discard(project, waiter)
        self._let_in()
