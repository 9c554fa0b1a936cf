"""A log in a temporary directory, and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from streams.embedded.log import EmbeddedLog
from tests.unit.streams.clocks import HandClock

Reopen = Callable[..., Coroutine[None, None, EmbeddedLog]]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def reopen(tmp_path: Path, loop: asyncio.Runner, clock: HandClock) -> Iterator[Reopen]:
    """Close the log, if any is open, and open it again; a new one has a topic `t` of two partitions."""
    current: list[EmbeddedLog] = []

    async def close() -> None:
        while current:
            await current.pop().close()

    async def again(**settings: object) -> EmbeddedLog:
        await close()
        is_new = not (tmp_path / "data").exists()
        current.append(EmbeddedLog.open(tmp_path / "data", clock=clock, **{"sync": False, **settings}))  # type: ignore[arg-type]
        if is_new:
            current[0].declare("t", 2)
        return current[0]

    yield again
    loop.run(close())


@pytest.fixture
def log(reopen: Reopen, loop: asyncio.Runner) -> EmbeddedLog:
    return loop.run(reopen())
