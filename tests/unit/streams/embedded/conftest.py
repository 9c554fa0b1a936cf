"""A log in a temporary directory, an event loop that outlives single calls, and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.embedded.log import EmbeddedLog


class HandClock:
    """Seconds since the epoch, as set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def reopen(tmp_path: Path, runner: asyncio.Runner, clock: HandClock) -> Iterator[Callable[..., EmbeddedLog]]:
    """Close the log, if any is open, and open it again."""
    current: list[EmbeddedLog] = []

    def again(**settings: object) -> EmbeddedLog:
        while current:
            runner.run(current.pop().close())
        current.append(EmbeddedLog.open(tmp_path / "data", clock=clock, **{"sync": False, **settings}))  # type: ignore[arg-type]
        return current[-1]

    yield again
    for log in current:
        runner.run(log.close())


@pytest.fixture
def log(reopen: Callable[..., EmbeddedLog]) -> EmbeddedLog:
    opened = reopen()
    opened.declare("t", 2)
    return opened
