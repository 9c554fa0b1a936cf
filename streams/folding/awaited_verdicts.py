"""Callbacks of appended commands, called with the verdicts of their folds."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from topics.folding import Answer

T = TypeVar("T")


class VerdictCall:
    """Passes a verdict or an error to a callback, once, in the same turn of the loop. Loop only."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[Answer], None]) -> None:
        """`answered` must not raise."""
        self._answered: Callable[[Answer], None] | None = answered

    def answer(self, answer: Answer) -> None:
        """Pass the answer on, unless there was one before."""
        # The callback may refer to this call: a cycle would keep its chunk until the next garbage collection.
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class Verdicts:
    """Tracks the commands of this process that wait for their fold. Loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, VerdictCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def call(self, command: str, answered: Callable[[Answer], None]) -> VerdictCall:
        """Register a command in the same turn of the loop that appends it, so that no verdict comes earlier."""
        call = self._waiting[command] = VerdictCall(answered)
        return call

    def forget(self, command: str) -> None:
        """Stop waiting for a command. Idempotent."""
        self._waiting.pop(command, None)

    def awaits(self, command: str) -> bool:
        """Return whether the verdict on a command reaches its sender.

        It does not if the sender was told that the write may still succeed, or sent it to another process.
        """
        return command in self._waiting

    def resolve(self, command: str, answer: Answer) -> None:
        """Pass a verdict or an error to the waiting request, if there is one: replayed commands have none."""
        if (call := self._waiting.pop(command, None)) is not None:
            call.answer(answer)


def settle(future: asyncio.Future[T], answer: T | Exception) -> None:
    """Resolve a future with an answer or an error, unless it was cancelled."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
        future.exception()  # Mark it retrieved: whoever waits for it may be gone.
    else:
        future.set_result(answer)
