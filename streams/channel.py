"""Faust channels that hold work instead of messages."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

from faust import App
from faust.channels import Channel

T = TypeVar("T")


class WorkChannel(Channel[T], Generic[T]):  # type: ignore[misc]
    """Gives an agent its work: `take` decides what comes next. Loop only.

    A Faust channel is a queue of messages, but work is not: it is done once even if announced a hundred times,
    projects take turns, and deleted sessions drop out. So nothing is sent here. The agent's actors share this channel.
    `wake` makes one waiting actor call `take` again.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app)
        #: Waiting actors, longest wait first.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._ended = False

    @abstractmethod
    def take(self) -> T | None:
        """Return the next work for an actor, None if nothing is ready."""

    def wake(self) -> None:
        """Make one waiting actor call `take`; busy actors do so when they are done."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def clone(self, **kwargs: Any) -> WorkChannel[T]:
        """Return this channel: Faust gives each stream a clone, but all actors share the work."""
        return self

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ended:
            if (item := self.take()) is not None:
                return item
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.wake()  # Another actor does the work instead.
                raise
        raise StopAsyncIteration

    def _throw(self, exc: BaseException) -> None:
        """End the actors. Faust calls this with StopAsyncIteration when an agent stops."""
        self._ended = True
        while self._waiters:
            self.wake()
