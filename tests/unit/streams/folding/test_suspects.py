"""Whose turn it is among what a process may have died of."""

from __future__ import annotations

import asyncio

from streams.folding.suspects import Suspects


class Turns:
    """Turns that are held until the test says so."""

    def __init__(self) -> None:
        self.suspects = Suspects()
        self.held: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, name: str, *, alone: bool | None) -> None:
        """Ask for the turn of a session, or of a job's service (`alone` is None)."""
        self.ends[name] = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._hold(name, alone)))
        await self.settle()

    async def _hold(self, name: str, alone: bool | None) -> None:
        turn = self.suspects.job_turn() if alone is None else self.suspects.session_turn(alone)
        async with turn:
            self.held.append(name)
            await self.ends[name].wait()
            self.held.remove(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_sessions_that_were_not_counted_go_together_and_counted_ones_alone() -> None:
    turns = Turns()
    await turns.begin("a", alone=False)
    await turns.begin("b", alone=False)
    await turns.begin("counted", alone=True)
    assert turns.held == ["a", "b"]
    await turns.end("a")
    assert turns.held == ["b"]
    await turns.end("b")
    await turns.begin("c", alone=False)
    await turns.begin("counted too", alone=True)
    assert turns.held == ["counted"]
    await turns.end("counted")
    await turns.end("c")
    assert turns.held == ["counted too"]
    await turns.end("counted too")
    await asyncio.gather(*turns.tasks)


async def test_services_of_jobs_go_one_by_one_once_no_session_is_suspected() -> None:
    turns = Turns()
    turns.suspects.add(["S", "T"])
    assert "S" in turns.suspects
    await turns.begin("one", alone=None)
    await turns.begin("two", alone=None)
    turns.suspects.clear("S")
    turns.suspects.clear("S")
    await turns.settle()
    assert turns.held == []
    turns.suspects.clear("T")
    await turns.settle()
    assert turns.held == ["one"]
    turns.tasks[0].cancel()
    await turns.settle()
    assert turns.held == ["one", "two"]  # The first was told nothing of its end, but has given its turn back.
    await turns.end("two")
    await asyncio.gather(*turns.tasks, return_exceptions=True)
