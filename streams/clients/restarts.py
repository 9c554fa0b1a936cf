"""Calls of something that is started again when it dies, and may have died of one of them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from topics.folding import DEATHS

T = TypeVar("T")


class Restarts:
    """Makes calls again that a death has broken, one after the other: none fails for the deaths of another.

    Loop only.
    """

    def __init__(self, most: int = DEATHS) -> None:
        """Make a call at most `most` times."""
        self._most = most
        self._turn = asyncio.Lock()

    async def call(self, make: Callable[[], Awaitable[T]], died: type[Exception]) -> T:
        """Return what `make` returns, which raises `died` when its call was broken, and here the last time, too."""
        with suppress(died):
            return await make()
        async with self._turn:
            for _ in range(self._most - 2):
                with suppress(died):
                    return await make()
            return await make()
