"""A log that was made of what was left of another: records keep their offsets, and no offset is given twice."""

from __future__ import annotations

from pathlib import Path

from streams.embedded.log import EmbeddedLog
from streams.embedded.maintenance import first_since
from streams.embedded.salvage import SKIPPED, NewLog, remains
from streams.log import StoredRecord
from topics.catalog import TopicPartition

TP = TopicPartition("t", 0)


def write(path: Path, *offsets: int) -> None:
    """Make a log whose partition has only some offsets; each record's time is its offset."""
    new = NewLog(path, b"n" * 16, 7)
    new.topic("t", 1)
    for offset in offsets:
        new.append(TP, StoredRecord(offset, offset, b"key", bytes(5000)))
    new.close()


async def test_offsets_that_are_lost_stay_so(tmp_path: Path) -> None:
    write(tmp_path / "broken", 0, 1, 4, 6)
    with remains(tmp_path / "broken", tmp_path / "scratch") as old:
        new = NewLog(tmp_path / "log", old.name, old.group)
        new.topic("t", 1)
        kept = new.keep(TP, old, 9)
        new.close()
    assert (kept.records, kept.first, kept.end) == (4, 0, 7)
    assert list(kept.gaps) == [range(2, 4), range(5, 6), range(7, 9)]
    log = EmbeddedLog.open(tmp_path, name=b"n" * 16)
    log.declare("t", 1)
    assert [record.offset for record in log.read(TP, 0, 100, 1 << 20)] == [0, 1, 4, 6]
    assert [log.get(TP, offset) is None for offset in (1, 2, 6, 8)] == [False, True, False, True]
    assert (await log.append("t", 0, b"key", b"new")).offset == 9 + SKIPPED
    # Time may take records up to one that is there, and never what follows on a gap.
    assert [first_since(log, TP, time) for time in (0, 1, 4, 5)] == [0, 1, 2, 5]
    await log.close()


async def test_values_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "broken", *range(10))
    (blob,) = (tmp_path / "broken").glob("*.blob")
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    with remains(tmp_path / "broken", tmp_path / "scratch") as old:
        offsets = [record.offset for record in old.records(TP)]
    assert len(offsets) == 9
    assert not (tmp_path / "scratch").exists()


def test_there_may_be_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in "none", "empty":
        with remains(tmp_path / name, tmp_path / "scratch") as old:
            assert (old.topics, old.name, old.group, list(old.records(TP))) == ({}, None, 0, [])
