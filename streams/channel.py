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
    """The channel from which an agent takes its work: `take` decides what comes next. Loop only.

    A channel of Faust is a queue of messages, but work is not: something announced a hundred times is done once,
    projects take turns, and deleted sessions are removed. So nothing is sent here. The agent's actors share this
    channel. `wake` lets one waiting actor ask `take` again, until the agent stops.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app)
        #: Waiting actors, the one that has waited longest first.
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._ended = False

    @abstractmethod
    def take(self) -> T | None:
        """Return what an actor does next, None when nothing is ready."""

    def wake(self) -> None:
        """Let one actor ask for work; a busy actor asks by itself when it is done."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def clone(self, **kwargs: Any) -> WorkChannel[T]:
        """Return this channel: Faust gives each stream a clone, and all actors of the agent share the work."""
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
                    self.wake()  # Another one takes what this one was woken for.
                raise
        raise StopAsyncIteration

    def _throw(self, exc: BaseException) -> None:
        """End the actors: Faust throws StopAsyncIteration when an agent stops."""
        self._ended = True
        while self._waiters:
            self.wake()
