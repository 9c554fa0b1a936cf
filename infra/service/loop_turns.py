"""Turns of connections: how much input one iteration of the event loop handles, and whose."""

import asyncio
from collections.abc import Callable
from typing import Final

from topics.turns import Sharing, Turns

#: Received pieces of input, mostly whole requests, that an iteration handles: if one sender has all connections, and if
#: several senders share the loop.
ALONE: Final = 64
SHARED: Final = 2
#: Bytes that wait at most; more are handled at once, and then count as bodies.
HELD_BYTES: Final = 8 * 1024 * 1024
#: Seconds for which the loop counts as shared after input of another sender.
SHARED_SECONDS: Final = 2.0


class LoopTurns:
    """Spreads the handling of input over iterations of the event loop, in turn by sender. Loop only.

    Otherwise each iteration would serve every request that has arrived, so a project with a thousand connections would
    delay the others by a thousand requests.
    """

    def __init__(self) -> None:
        self._turns: Turns[Callable[[], None]] = Turns()
        #: Bytes that wait.
        self.held = 0
        self._taken = 0
        self._pieces = ALONE
        self._sharing = Sharing(SHARED_SECONDS)

    def take(self, sender: str, now: float, size: int) -> bool:
        """Return whether `size` bytes of input may be handled at once at `now` (s); otherwise they must `wait`.

        A new connection's `sender` is "": every client opens connections, so it does not count as another one.
        """
        if sender:
            self._sharing.note(sender, now)
        self._pieces = SHARED if self._sharing.is_shared(now) else ALONE
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next)
        elif self._taken >= self._pieces:
            return self.held + size > HELD_BYTES
        self._taken += 1
        return True

    def wait(self, sender: str, size: int, handle: Callable[[], None]) -> None:
        """Call `handle`, which subtracts `size` from `held`, when it is the sender's turn."""
        self.held += size
        self._turns.put(sender, handle)

    def _next(self) -> None:
        loop, self._taken = asyncio.get_running_loop(), 0
        while self._taken < self._pieces and (handle := self._turns.take()) is not None:
            self._taken += 1
            loop.call_soon(handle)
        if self._taken:
            loop.call_soon(self._next)
