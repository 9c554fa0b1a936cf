"""Verdicts on their way back: futures of commands that were appended, resolved when they are folded."""

from __future__ import annotations

import asyncio

from topics.folding import Verdict


class Verdicts:
    """The commands of this process that wait for their fold. Loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, command: str) -> asyncio.Future[Verdict]:
        """Register a command; call it in the turn of the loop that appends it, so that no verdict overtakes it."""
        future = self._waiting[command] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, command: str) -> None:
        """Stop waiting for a command; allowed twice."""
        self._waiting.pop(command, None)

    def resolve(self, command: str, verdict: Verdict) -> None:
        """Give a verdict to the request that waits for it in this process; a replayed command has none."""
        future = self._waiting.pop(command, None)
        if future is not None and not future.done():
            future.set_result(verdict)
