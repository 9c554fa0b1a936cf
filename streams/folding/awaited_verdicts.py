"""Futures of appended commands, resolved with the verdicts of their folds."""

import asyncio
from collections.abc import Callable

from topics.errors import EarshotError
from topics.folding import Answer, Verdict


class VerdictCall:
    """Passes a verdict to a callback in the same turn of the loop; cheaper than a future. Loop only."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[Answer], None]) -> None:
        """Call `answered` once, with the verdict or an error; it must not raise."""
        self._answered: Callable[[Answer], None] | None = answered

    def done(self) -> bool:
        return self._answered is None

    def set_result(self, verdict: Verdict) -> None:
        self._answer(verdict)

    def set_exception(self, error: EarshotError) -> None:
        self._answer(error)

    def _answer(self, answer: Answer) -> None:
        # The callback may refer to this call: a cycle would keep its chunk until the next garbage collection.
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class Verdicts:
    """Tracks the commands of this process that wait for their fold. Loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Verdict] | VerdictCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, command: str) -> asyncio.Future[Verdict]:
        """Register a command in the same turn of the loop that appends it, so that no verdict comes earlier."""
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[command] = future
        return future

    def call(self, command: str, answered: Callable[[Answer], None]) -> VerdictCall:
        call = self._waiting[command] = VerdictCall(answered)
        return call

    def forget(self, command: str) -> None:
        """Stop waiting for a command. Idempotent."""
        self._waiting.pop(command, None)

    def resolve(self, command: str, verdict: Verdict) -> None:
        """Pass a verdict to the waiting request, if there is one: replayed commands have none."""
        future = self._waiting.pop(command, None)
        if future is not None and not future.done():
            future.set_result(verdict)
