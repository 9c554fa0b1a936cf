"""A log in a temporary directory, and a clock set by hand."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streams.embedded.embedded_log import EmbeddedLog
from streams.log import StoredRecord
from tests.unit.streams.clocks import HandClock

Reopen = Callable[..., Coroutine[None, None, EmbeddedLog]]


class FailingRocks:
    """An open RocksDB with a method that raises a given number of times."""

    def __init__(self, rocks: Any, method: str, said: str, times: int = 1 << 30) -> None:
        self.times = times
        self._rocks = rocks
        self._method = method
        self._said = said

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self.times:
            return self._fail
        return getattr(self._rocks, name)

    def _fail(self, *args: object) -> None:
        self.times -= 1
        raise Exception(self._said)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def reopen(tmp_path: Path, loop: asyncio.Runner, clock: HandClock) -> Iterator[Reopen]:
    """Close any open log and reopen it; a new one has a topic `t` with two partitions."""
    current: list[EmbeddedLog] = []

    async def close() -> None:
        while current:
            await current.pop().close()

    async def again(**settings: object) -> EmbeddedLog:
        await close()
        is_new = not (tmp_path / "data").exists()
        current.append(EmbeddedLog.open(tmp_path / "data", clock=clock, **{"steady": clock, "sync": False, **settings}))  # type: ignore[arg-type]
        if is_new:
            current[0].declare("t", 2)
        return current[0]

    yield again
    loop.run(close())


@pytest.fixture
def log(reopen: Reopen, loop: asyncio.Runner) -> EmbeddedLog:
    return loop.run(reopen())


def compacted(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Return records without a key, and the last of each key: a plain definition of compaction."""
    return [
        record
        for index, record in enumerate(records)
        if record.key is None or all(later.key != record.key for later in records[index + 1 :])
    ]
