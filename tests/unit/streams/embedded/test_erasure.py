"""Removed records leave the log's files, also those beside records that are needed for longer."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from streams.embedded import compaction
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.maintenance import Maintenance
from tests.unit.streams.appending import append_soon
from tests.unit.streams.embedded.conftest import Reopen
from topics.catalog import TopicPartition

AUDIO = TopicPartition("audio", 0)
ROWS = TopicPartition("rows", 0)
#: In a blob file, and beside its key.
SIZES = 20_000, 1000


async def opened(reopen: Reopen) -> EmbeddedLog:
    log = await reopen(sync=True)
    log.declare("audio", 1)
    log.declare("rows", 1, compact=True)
    return log


@pytest.fixture
def log(reopen: Reopen, loop: asyncio.Runner) -> EmbeddedLog:
    return loop.run(opened(reopen))


def value(mark: str, number: int, size: int) -> bytes:
    return b"<%s %d>" % (mark.encode(), number) + os.urandom(size)


async def fill(log: EmbeddedLog, mark: str, count: int) -> None:
    for number in range(count):
        append_soon(log, "audio", 0, b"k", value(mark, number, SIZES[number % 2]))
    await log.flush()


def found(path: Path, mark: str) -> list[str]:
    """Return the records whose bytes are in a file."""
    # Random bytes may begin like a mark; they hardly go on with a number.
    sought = re.compile(rb"<%s (\d+)>" % mark.encode())
    data = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
    return sorted({number.decode() for number in sought.findall(data)}, key=int)


def maintenance(log: EmbeddedLog, needed: set[int]) -> Maintenance:
    def those(tp: TopicPartition, start: int, stop: int, most: int | None) -> list[int]:
        if most is not None and len(needed) > most:
            return []
        return [*sorted(offset for offset in needed if start <= offset < stop), stop]

    return Maintenance(log, lambda tp: min(needed, default=log.end(tp)) if tp == AUDIO else None, those)


async def test_records_between_needed_ones_are_erased(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them, and among more needed ones than are usually searched."""
    monkeypatch.setattr("streams.embedded.maintenance.NEEDED_SEARCHED", 3)
    needed = {0, 3, 6, 7, 20}
    await fill(log, "a", 40)
    kept = {offset: log.get(AUDIO, offset) for offset in needed}
    assert len(found(tmp_path, "a")) == 40
    keeper = maintenance(log, needed)
    await keeper.erase()
    assert found(tmp_path, "a") == [str(offset) for offset in sorted(needed)]
    assert {offset: log.get(AUDIO, offset) for offset in needed} == kept
    needed -= {3, 7, 20}
    await keeper.erase()
    assert found(tmp_path, "a") == ["0", "6"]
    assert log.get(AUDIO, 6) == kept[6]


async def test_erasure_goes_on_after_restart(reopen: Reopen, tmp_path: Path) -> None:
    """The records were removed, and the process ended before a round."""
    log = await opened(reopen)
    await fill(log, "a", 30)
    log = await opened(reopen)
    log.make_hole(AUDIO, 1, 25)
    await log.flush()
    log = await opened(reopen)
    await fill(log, "b", 2)
    assert len(found(tmp_path, "a")) > 6
    await maintenance(log, {0, 25, 26, 27, 28, 29, 30, 31}).erase()
    assert found(tmp_path, "a") == ["0", "25", "26", "27", "28", "29"]
    assert found(tmp_path, "b") == ["0", "1"]


async def test_nothing_is_rewritten_if_nothing_was_removed(log: EmbeddedLog, tmp_path: Path) -> None:
    await fill(log, "a", 30)
    keeper = maintenance(log, {0, *range(10, 30)})
    await keeper.erase()

    def files() -> dict[Path, int]:
        return {file: file.stat().st_size for kind in ("*.sst", "*.blob") for file in tmp_path.rglob(kind)}

    before = files()
    assert before
    await keeper.erase()
    assert files() == before


async def test_superseded_rows_are_erased_though_few(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "RECENT_KEYS", 1)
    for number in range(10):
        append_soon(log, "rows", 0, b"k%d" % number, value("r", number, SIZES[number % 2]))
    for number in range(1, 10):
        append_soon(log, "rows", 0, b"k%d" % number, None)
    append_soon(log, "rows", 0, b"other", b"v")
    await log.flush()
    await maintenance(log, set()).erase()
    assert found(tmp_path, "r") == ["0"]


async def test_record_that_is_removed_while_it_moves_stays_removed(log: EmbeddedLog, tmp_path: Path) -> None:
    await fill(log, "a", 4)
    keys = [log._partitions[AUDIO].key(offset) for offset in range(4)]
    log.make_hole(AUDIO, 1, 3)
    moving = asyncio.create_task(log._writer.move(keys, 1))
    await asyncio.sleep(0)
    await log.flush()
    await moving
    assert [log.get(AUDIO, offset) is None for offset in range(4)] == [False, True, True, False]
    log.trim(AUDIO, 1)
    await log.flush()
    await log._writer.move(keys, 1)
    await maintenance(log, {3}).erase()
    assert found(tmp_path, "a") == ["3"]
