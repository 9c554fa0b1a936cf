"""A log that has lost something does not open, and what is left of it stays as it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.embedded.errors import LogError, LogLocked
from streams.embedded.log import EmbeddedLog
from streams.embedded.marks import Marks
from topics.catalog import TopicPartition

Damage = Callable[[Path], None]


async def fill(directory: Path, *, clean: bool) -> Path:
    """Return a directory with a log, and marks beside it, that ended in order or by a kill."""
    marks = Marks(directory / "marks")
    log = EmbeddedLog.open(directory / "log", marks=marks)
    log.declare("t", 1)
    for _ in range(5):
        await log.append("t", 0, b"key", bytes(9000))
    killed = Path(shutil.copytree(directory, directory.with_name("killed")))
    await log.close()
    marks.close()
    return directory if clean else killed


def reopen(directory: Path, name: bytes | None = None) -> EmbeddedLog:
    return EmbeddedLog.open(directory / "log", marks=Marks(directory / "marks"), name=name)


def content(directory: Path) -> dict[str, bytes]:
    """Return the files of the log that hold records."""
    return {file.name: file.read_bytes() for file in directory.rglob("[0-9]*")}


def cut(pattern: str, size: int) -> Damage:
    def damage(log: Path) -> None:
        (file,) = log.glob(pattern)
        os.truncate(file, file.stat().st_size - size if size > 0 else 0)

    return damage


def remove(pattern: str) -> Damage:
    def damage(log: Path) -> None:
        for file in log.glob(pattern):
            file.unlink()

    return damage


@pytest.mark.parametrize(
    ("clean", "damage", "said"),
    [
        (True, remove("CURRENT"), "CURRENT is missing"),
        (False, remove("CURRENT"), "CURRENT is missing"),
        (False, cut("*.log", 100), "ends at write [0-9]+, and there were"),
        (False, cut("*.log", 0), "ends at write 0, and there were"),
        (False, remove("*.log"), "ends at write 0, and there were"),
        (True, cut("MANIFEST-*", 50), "damaged|ends at write"),
        (True, remove("MANIFEST-*"), "damaged"),
        (True, remove("*.sst"), "damaged"),
        (True, remove("*.blob"), "damaged"),
        (True, cut("*.blob", 9000), "damaged"),
        (True, cut("*.sst", 100), "damaged"),
        (True, shutil.rmtree, "missing, although there was one"),
    ],
)
async def test_what_is_lost_is_said_and_nothing_more_is_lost(
    tmp_path: Path, clean: bool, damage: Damage, said: str
) -> None:
    directory = await fill(tmp_path / "data", clean=clean)
    damage(directory / "log" / "log")
    before = content(directory)
    for _ in range(2):
        with pytest.raises(LogError, match=f"{said}.*earshot restore BACKUP"):
            reopen(directory)
    assert content(directory) == before


async def test_marks_that_are_lost_keep_nobody_out(tmp_path: Path) -> None:
    directory = await fill(tmp_path / "data", clean=False)
    for data in None, b"", b"cut", (directory / "marks").read_bytes()[::-1]:
        (directory / "marks").unlink() if data is None else (directory / "marks").write_bytes(data)
        log = reopen(directory)
        assert log.end(TopicPartition("t", 0)) == 5
        await log.close()


async def test_a_log_knows_its_name(tmp_path: Path) -> None:
    directory = await fill(tmp_path / "data", clean=True)
    log = reopen(directory)
    name = log.store.name()
    await log.close()
    log = reopen(directory, name)
    assert log.store.name() == name
    await log.close()
    with pytest.raises(LogError, match="not the one that the database belongs to"):
        reopen(directory, b"another")


async def test_an_open_log_is_not_called_damaged(tmp_path: Path) -> None:
    log = EmbeddedLog.open(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(LogLocked, match="open in another process"):
        EmbeddedLog.open(tmp_path)
    await log.close()
