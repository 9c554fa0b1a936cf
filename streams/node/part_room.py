"""A bound on the bytes of recording parts in the log's queue, shared by projects in turn."""

import asyncio

from topics.errors import Unavailable
from topics.turns import Turns

#: A waiter and the bytes it needs.
Waiter = tuple[asyncio.Future[None], int]


class PartRoom:
    """Admits up to `limit` bytes at a time, or one larger part; the rest wait in turn by project. Loop only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: Turns[Waiter] = Turns()
        #: The waiter whose turn it is, while there is not enough room for it.
        self._next: Waiter | None = None

    async def enter(self, project: str, size: int, deadline: float) -> None:
        """Reserve `size` bytes, after earlier waiters of the same project; `leave` releases them.

        Raises:
            Unavailable: there was no room before the deadline, in the loop's time.
        """
        if self._next is None and self._fits(size):
            self.used += size
            return
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

    def leave(self, size: int) -> None:
        self.used -= size
        self._let_in()

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit

    def _let_in(self) -> None:
        while (waiter := self._next or self._waiting.take()) is not None:
            self._next = waiter
            room, size = waiter
            if not room.done() and not self._fits(size):
                return
            self._next = None
            if not room.done():  # Otherwise its caller gave up.
                self.used += size
                room.set_result(None)

    def _give_up(self, project: str, waiter: Waiter) -> None:
        room, size = waiter
        if room.done() and not room.cancelled():
            self.leave(size)  # It was admitted at the same moment.
            return
        if self._next is waiter:
            self._next = None
        else:
            self._waiting.discard(project, waiter)
        self._let_in()
