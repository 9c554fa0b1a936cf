"""A log that is written is copied as it was at one moment, whatever it does to its files meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from streams.embedded import pinned as module
from streams.embedded.errors import LogError
from streams.embedded.log import EmbeddedLog
from streams.embedded.pinned import PINNED, pinned
from topics.catalog import TopicPartition

RECORDS = 20


async def filled(directory: Path) -> EmbeddedLog:
    """Return an open log with records, the first of them in a table."""
    log = EmbeddedLog.open(directory)
    log.declare("t", 1)
    for number in range(RECORDS):
        await log.append("t", 0, b"key", bytes(5000))
        if number == RECORDS // 2:
            log.store._db.rocks.flush()
    return log


async def test_files_that_change_while_they_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await filled(tmp_path / "log")
    link, flushes = os.link, 0

    def linked_after_a_flush(source: Path, target: Path) -> None:
        nonlocal flushes
        link(source, target)
        if flushes < 2:
            flushes += 1
            # After the tables were listed the write-ahead log becomes one, and goes before it is listed.
            log.store._db.rocks.put(b"x", b"")
            log.store._db.rocks.flush()

    monkeypatch.setattr(os, "link", linked_after_a_flush)
    with pinned(tmp_path / "log") as path:
        shutil.copytree(path, tmp_path / "copy" / "log")
    assert flushes == 2
    assert not (tmp_path / "log" / PINNED).exists()
    await log.close()
    copy = EmbeddedLog.open(tmp_path / "copy")
    assert copy.end(TopicPartition("t", 0)) == RECORDS
    assert len(copy.read(TopicPartition("t", 0), 0, 1000, 1 << 30)) == RECORDS
    await copy.close()


async def test_files_that_change_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await filled(tmp_path)
    monkeypatch.setattr(module, "_link", lambda *_: False)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)
    with pytest.raises(LogError, match="change too fast to be copied: try again"), pinned(tmp_path):
        pass
    assert not (tmp_path / PINNED).exists()
    await log.close()


async def test_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await filled(tmp_path)

    def refuse(source: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted", str(source))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(LogError, match="cannot be copied: Operation not permitted"), pinned(tmp_path):
        pass
    await log.close()
