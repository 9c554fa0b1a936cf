"""Verdicts on their way back: futures of commands that were appended, resolved when they are folded."""

import asyncio
from collections.abc import Callable

from topics.errors import EarshotError
from topics.folding import Verdict


class VerdictCall:
    """Called by a verdict in the same turn of the loop: cheaper than a future. Loop only."""

    __slots__ = ("_answered", "_done")

    def __init__(self, answered: Callable[[Verdict | EarshotError], None]) -> None:
        """Call `answered` once, with the verdict or with what went wrong; it must not raise."""
        self._answered = answered
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, verdict: Verdict) -> None:
        self._done = True
        self._answered(verdict)

    def set_exception(self, error: EarshotError) -> None:
        self._done = True
        self._answered(error)


class Verdicts:
    """The commands of this process that wait for their fold. Loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Verdict] | VerdictCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, command: str) -> asyncio.Future[Verdict]:
        """Register a command; call it in the turn of the loop that appends it, so that no verdict overtakes it."""
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[command] = future
        return future

    def call(self, command: str, answered: Callable[[Verdict | EarshotError], None]) -> VerdictCall:
        call = self._waiting[command] = VerdictCall(answered)
        return call

    def forget(self, command: str) -> None:
        """Stop waiting for a command; allowed twice."""
        self._waiting.pop(command, None)

    def resolve(self, command: str, verdict: Verdict) -> None:
        """Give a verdict to the request that waits for it in this process; a replayed command has none."""
        future = self._waiting.pop(command, None)
        if future is not None and not future.done():
            future.set_result(verdict)
