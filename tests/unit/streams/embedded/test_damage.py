"""A log with losses does not open and stays unchanged; the rest is salvaged, and copies are complete."""

import asyncio
import errno
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rocksdict import WriteBatch

from streams.embedded import embedded_log as log_module
from streams.embedded import log_store as store
from streams.embedded import maintenance
from streams.embedded import pinned as module
from streams.embedded.embedded_backend import EmbeddedBackend
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.errors import LogDamaged, LogError, LogLocked
from streams.embedded.group_writer import TOPICS_GROUPS
from streams.embedded.lock import DirectoryLock
from streams.embedded.maintenance import first_since
from streams.embedded.marks import Marks
from streams.embedded.pinned import PINNED, pinned
from streams.embedded.salvage import SKIPPED, Kept, NewLog, remains
from streams.log import StoredRecord
from tests.damage.files import Damage, cut, each, emptied, flipped
from tests.waiting import turn, until
from topics.catalog import TopicPartition

TP = TopicPartition("t", 0)


async def fill(directory: Path, *, clean: bool) -> Path:
    """Return a directory with a log, and marks beside it, after a clean stop or a kill."""
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
    return {file.name: file.read_bytes() for file in directory.rglob("[0-9]*")}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("clean", "damage", "said"),
    [
        (True, each("CURRENT"), "CURRENT is missing"),
        (False, each("CURRENT"), "CURRENT is missing"),
        (False, each("*.log", partial(cut, size=100)), "ends at write [0-9]+, and there were"),
        (False, each("*.log", emptied), "ends at write 0, and there were"),
        (False, each("*.log"), "ends at write 0, and there were"),
        (True, each("MANIFEST-*", partial(cut, size=50)), "damaged|ends at write"),
        (True, each("MANIFEST-*"), "damaged"),
        (True, each("*.sst"), "damaged"),
        (True, each("*.blob"), "damaged"),
        (True, each("*.blob", partial(cut, size=9000)), "damaged"),
        (True, each("*.sst", partial(cut, size=100)), "damaged"),
        (True, shutil.rmtree, "missing, although there was one"),
    ],
)
async def test_damaged_log_is_rejected_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool, damage: Damage, said: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(store, "SMALL", -1)
    directory = await fill(tmp_path / "data", clean=clean)
    damage(directory / "log" / "log")
    before = content(directory)
    for _ in range(2):
        with pytest.raises(LogError, match=f"{said}.*earshot restore BACKUP"):
            reopen(directory)
    assert content(directory) == before


# --- large logs are verified after the start ------------------------------------------------------------------------

#: Corrupt, or repair, a record in the middle of a log.
flip = each("log/log/*.blob", flipped)


async def failure(log: EmbeddedLog, use: Callable[[], object] = lambda: None) -> BaseException | None:
    """Read or use a log; return the error that ends its node, or None."""
    user = mock.Mock(floor=lambda tp: None)
    backend = EmbeddedBackend(log, [], 1, time.time)
    with mock.patch.object(maintenance, "ROUND_SECONDS", 0.01):
        await backend.start(user)
        use()
        await turn()
        await until(lambda: user.fail.called or not log.store.is_unread)
        await backend.close()
    return user.fail.call_args.args[0] if user.fail.called else None


async def test_large_log_is_verified_after_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SMALL", -1)
    monkeypatch.setattr(log_module, "SLICE_BYTES", 5000)
    directory = await fill(tmp_path / "data", clean=True)
    assert await failure(reopen(directory)) is None
    flip(directory)
    assert isinstance(found := await failure(reopen(directory)), LogDamaged)
    assert "earshot restore BACKUP" in str(found)
    # The damage is recorded: no start becomes ready until it is repaired, here by hand.
    for _ in range(2):
        with pytest.raises(LogDamaged, match="earshot restore BACKUP"):
            reopen(directory)
    flip(directory)
    for _ in range(2):
        assert await failure(reopen(directory)) is None


async def test_small_log_is_not_verified_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_on = mock.Mock(return_value=None)
    monkeypatch.setattr(EmbeddedLog, "read_on", read_on)
    directory = await fill(tmp_path / "data", clean=True)
    for small, reads in (store.SMALL, 0), (-1, 1):
        monkeypatch.setattr(store, "SMALL", small)
        assert await failure(reopen(directory)) is None
        assert read_on.call_count == reads


async def test_unreadable_record_is_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = await fill(tmp_path / "data", clean=True)
    flip(directory)
    monkeypatch.setattr(store, "SMALL", -1)
    monkeypatch.setattr(EmbeddedLog, "read_on", lambda log, start: start)
    log = reopen(directory)

    def use() -> None:
        with pytest.raises(LogDamaged):
            log.get(TP, 2)

    assert isinstance(await failure(log, use), LogDamaged)
    with pytest.raises(LogDamaged):
        reopen(directory)


async def test_verification_stops_when_log_closes(tmp_path: Path) -> None:
    log = reopen(await fill(tmp_path / "data", clean=True))
    await log.close()
    assert log.read_on(b"") is None


async def test_lost_marks_do_not_block_start(tmp_path: Path) -> None:
    directory = await fill(tmp_path / "data", clean=False)
    for data in None, b"", b"cut", (directory / "marks").read_bytes()[::-1]:
        (directory / "marks").unlink() if data is None else (directory / "marks").write_bytes(data)
        log = reopen(directory)
        assert log.end(TP) == 5
        await log.close()


async def test_log_keeps_its_name(tmp_path: Path) -> None:
    directory, name = await fill(tmp_path / "data", clean=True), None
    for _ in range(2):
        log = reopen(directory, name)
        name = name or log.store.name()
        assert log.store.name() == name
        await log.close()
    with pytest.raises(LogError, match="not the one that the database belongs to"):
        reopen(directory, b"another")


async def test_open_log_is_reported_as_locked(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data"
    log = EmbeddedLog.open(directory)
    with pytest.raises(LogLocked, match=f"data is in use by process {os.getpid()}"):
        EmbeddedLog.open(directory)
    (directory / "lock").unlink()
    with pytest.raises(LogLocked, match="open in another process"):
        EmbeddedLog.open(directory)
    await log.close()
    with (
        mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")),
        pytest.raises(LogError, match=r"cannot be locked \(No locks available\)") as refused,
    ):
        DirectoryLock(directory)
    assert not isinstance(refused.value, LogLocked)
    lock = DirectoryLock(directory)
    for _ in range(2):
        lock.release()


# --- salvage of a broken log ----------------------------------------------------------------------------------------


async def add(log: EmbeddedLog, *sizes: int) -> None:
    for size in sizes:
        await log.append("t", 0, b"key", bytes(size))


async def opened(directory: Path, *sizes: int) -> EmbeddedLog:
    """Open a log and append records of these sizes."""
    log = EmbeddedLog.open(directory)
    log.declare("t", 1)
    await add(log, *sizes)
    return log


def write(path: Path, *offsets: int) -> None:
    """Create a log whose partition has only these offsets; each record's time is its offset."""
    new = NewLog(path, b"n" * 16, 7)
    new.topic("t", 1)
    for offset in offsets:
        new.append(TP, StoredRecord(offset, offset, b"key", bytes(5000)))
    new.close()


def readable(broken: Path) -> dict[int, bytes | None]:
    """Return the readable values by offset."""
    with remains(broken, broken.with_name("scratch")) as old:
        found = {record.offset: record.value for record in old.records(TP)}
    assert not broken.with_name("scratch").exists()
    return found


def salvage(broken: Path, path: Path, end: int) -> Kept:
    """Salvage a log whose last known record was before `end` into a new directory."""
    path.mkdir()
    with remains(broken, path / "scratch") as old:
        new = NewLog(path / "log", old.name, old.group)
        new.topic("t", 1)
        kept = new.keep(TP, old, end)
        new.close()
    return kept


def test_salvage_waits_while_the_database_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB consumes a batch that it refuses."""
    inner, calls = store.Store.write, 0

    def write_when_asked_again(log: store.Store, batch: WriteBatch) -> None:
        nonlocal calls
        inner(log, batch)
        calls += 1
        if calls % 2:
            raise store.Stalled

    monkeypatch.setattr(store.Store, "write", write_when_asked_again)
    write(tmp_path / "log", 0, 1)
    assert list(readable(tmp_path / "log")) == [0, 1]


async def test_salvage_keeps_offset_gaps(tmp_path: Path) -> None:
    write(tmp_path / "broken", 0, 1, 4, 6)
    kept = salvage(tmp_path / "broken", tmp_path / "0", 9)
    assert (kept.records, kept.first, kept.end) == (4, 0, 7)
    assert list(kept.gaps) == [range(2, 4), range(5, 6), range(7, 9)]
    assert list(salvage(tmp_path / "0" / "log", tmp_path / "1", 9).gaps) == [], "these losses are known"
    with remains(tmp_path / "1" / "log", tmp_path / "scratch") as old:
        assert (old.name, old.group) == (b"n" * 16, 7)
    log = EmbeddedLog.open(tmp_path / "1", name=b"n" * 16)
    log.declare("t", 1)
    assert [record.offset for record in log.read(TP, 0, 100, 1 << 20)] == [0, 1, 4, 6]
    assert [log.get(TP, offset) is None for offset in (1, 2, 6, 8)] == [False, True, False, True]
    new = [(await log.append("t", 0, b"key", b"new")).offset for _ in range(3)]
    assert new == list(range(9 + SKIPPED, 12 + SKIPPED))
    assert len(log.read(TP, 0, 100, 1 << 20)) == 4 + 3, "the records of a key do not replace each other"
    # A time limit may drop records up to an existing one, and never those after a gap.
    assert [first_since(log, TP, time) for time in (0, 1, 4, 5)] == [0, 1, 2, 5]
    await log.close()
    later = salvage(tmp_path / "1" / "log", tmp_path / "2", 15 + SKIPPED)
    assert list(later.gaps) == [range(12 + SKIPPED, 15 + SKIPPED)]


async def test_salvage_skips_unreadable_values(tmp_path: Path) -> None:
    write(tmp_path / "broken", *range(10))
    each("*.blob", flipped)(tmp_path / "broken")
    assert len(readable(tmp_path / "broken")) == 9


def renamed(manifest: str, current: Path) -> None:
    current.write_text(f"{manifest}\n")


@pytest.mark.parametrize("damage", [Path.unlink, emptied, flipped, partial(renamed, "MANIFEST-999999")])
async def test_salvage_finds_the_list_of_files_without_current(tmp_path: Path, damage: Damage) -> None:
    directory = await fill(tmp_path / "data", clean=True)
    each("CURRENT", damage)(directory / "log" / "log")
    assert list(readable(directory / "log" / "log")) == [0, 1, 2, 3, 4]


async def test_salvage_reports_what_was_lost_beside_what_was_removed(tmp_path: Path) -> None:
    log = await opened(tmp_path / "data")
    for number in range(12):
        await log.append("t", 0, b"key", bytes([number]) * 9000)
    log.make_hole(TP, 1, 3)
    log.make_hole(TP, 5, 8)
    await log.close()
    (blobs,) = (tmp_path / "data" / "log").glob("*.blob")
    data = bytearray(blobs.read_bytes())
    for lost in (3, 9, 10):
        data[data.index(bytes([lost]) * 9000)] ^= 1
    blobs.write_bytes(data)
    kept = salvage(tmp_path / "data" / "log", tmp_path / "new", 13)
    assert (kept.records, list(kept.gaps)) == (4, [range(3, 4), range(9, 11), range(12, 13)])


def finished(log: Path, old: Path) -> None:
    """Leave a table that was compacted away."""
    shutil.copy(old, log)


def unlisted(log: Path, old: Path, size: int) -> None:
    """Leave a new table of `size` bytes that is not on the list yet."""
    (log / "999999.sst").write_bytes(old.read_bytes()[:size])


@pytest.mark.parametrize("leave", [finished, partial(unlisted, size=500), partial(unlisted, size=1 << 20)])
async def test_salvage_ignores_tables_that_a_kill_left(tmp_path: Path, leave: Callable[[Path, Path], None]) -> None:
    """Otherwise removed records come back, or are reported as lost."""
    log = await opened(tmp_path / "data", *[5] * 12)
    log.store._db.rocks.flush()
    (table,) = (tmp_path / "data" / "log").glob("*.sst")
    shutil.copy(table, tmp_path)
    log.make_hole(TP, 3, 8)
    await log.flush()
    log.reclaim(TP)
    assert not table.exists()
    await log.append("t", 0, b"key", b"in the write-ahead log")
    killed = Path(shutil.copytree(tmp_path / "data", tmp_path / "killed"))
    await log.close()
    leave(killed / "log", tmp_path / table.name)
    assert list(readable(killed / "log")) == [0, 1, 2, 8, 9, 10, 11, 12]
    assert list(salvage(killed / "log", tmp_path / "new", 13).gaps) == []


async def test_salvage_finds_tables_that_the_list_lost(tmp_path: Path) -> None:
    log = await opened(tmp_path / "data", 1)
    log.store._db.rocks.flush()
    (manifest,) = (tmp_path / "data" / "log").glob("MANIFEST-*")
    before = manifest.read_bytes()
    await log.append("t", 0, b"key", b"lost")
    await log.close()  # Writes a table.
    manifest.write_bytes(before)
    assert readable(tmp_path / "data" / "log") == {0: bytes(1), 1: b"lost"}


async def test_salvage_knows_topics_without_the_oldest_table(tmp_path: Path) -> None:
    log = await opened(tmp_path / "data", 1)
    log.store._db.rocks.flush()
    await add(log, *[1] * TOPICS_GROUPS)
    await log.close()
    min((tmp_path / "data" / "log").glob("*.sst")).unlink()
    assert list(readable(tmp_path / "data" / "log")) == list(range(1, TOPICS_GROUPS + 1))


async def lost_log(directory: Path) -> Path:
    """Return a log of two write-ahead logs that has lost the first: five records, of which a hole took two."""
    log = await opened(directory)
    log.store._db.rocks.flush()
    await add(log, 1, 1, 1, 25 * store.MIB, 1)  # The fourth one fills a write buffer.
    log.make_hole(TP, 1, 3)
    await log.flush()
    killed = Path(shutil.copytree(directory / "log", directory.with_name("killed")))
    await log.close()
    min(killed.glob("*.log")).unlink()
    return killed


async def lost_table(directory: Path) -> Path:
    """Return such a log of two tables that has lost the older one."""
    await (await opened(directory, 1, 1, 1, 1)).close()
    log = await opened(directory, 1)
    log.make_hole(TP, 1, 3)
    await log.close()
    min((directory / "log").glob("*.sst")).unlink()
    return directory / "log"


@pytest.mark.parametrize("lost", [lost_log, lost_table])
async def test_salvage_reports_lost_records_below_a_hole(
    tmp_path: Path, lost: Callable[[Path], Awaitable[Path]]
) -> None:
    kept = salvage(await lost(tmp_path / "data"), tmp_path / "new", 5)
    assert (kept.records, list(kept.gaps)) == (1, [range(4)])


def test_salvage_of_missing_log_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in "none", "empty":
        with remains(tmp_path / name, tmp_path / "scratch") as old:
            assert (old.topics, old.name, old.group, list(old.records(TP))) == ({}, None, 0, [])


# --- consistent copies of a log under writes -------------------------------------------------------------------------

RECORDS = 20


@pytest.fixture
def written(tmp_path: Path, loop: asyncio.Runner) -> Iterator[EmbeddedLog]:
    """Yield an open log with records, the first of them in a table."""
    log = loop.run(opened(tmp_path / "log", *[5000] * (RECORDS // 2)))
    log.store._db.rocks.flush()
    loop.run(add(log, *[5000] * (RECORDS // 2)))
    yield log
    loop.run(log.close())


async def test_copy_survives_files_changing_while_linked(
    written: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, flushes = os.link, 0

    def linked_after_a_flush(source: Path, target: Path) -> None:
        nonlocal flushes
        link(source, target)
        if flushes < 2:
            flushes += 1
            # After the listing of tables, the write-ahead log becomes one and disappears before it is listed.
            written.store._db.rocks.put(b"x", b"")
            written.store._db.rocks.flush()

    monkeypatch.setattr(os, "link", linked_after_a_flush)
    with pinned(tmp_path / "log") as path:
        shutil.copytree(path, tmp_path / "copy" / "log")
    assert flushes == 2
    assert not (tmp_path / "log" / PINNED).exists()
    copy = EmbeddedLog.open(tmp_path / "copy")
    assert copy.end(TP) == len(copy.read(TP, 0, 1000, 1 << 30)) == RECORDS
    await copy.close()


@pytest.mark.parametrize(
    ("target", "name", "double", "said"),
    [
        (module, "_list", mock.Mock(side_effect=zip(count(), count())), "change too fast to be copied: try again"),
        (
            os,
            "link",
            mock.Mock(side_effect=OSError(1, "Operation not permitted", "a table")),
            "cannot be copied: Operation not permitted (a table)",
        ),
        # The error of a failed write has no file name.
        (
            Path,
            "write_bytes",
            mock.Mock(side_effect=OSError(28, "No space left on device")),
            f"No space left on device ({{}}/{PINNED})",
        ),
    ],
    ids=["files keep changing", "no hard links", "full disk"],
)
async def test_failed_copy_says_why_and_leaves_nothing(
    written: EmbeddedLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Any,
    name: str,
    double: mock.Mock,
    said: str,
) -> None:
    monkeypatch.setattr(target, name, double)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)
    place = re.escape(said.format(tmp_path / "log"))
    with pytest.raises(LogError, match=place), pinned(tmp_path / "log"):
        pass
    assert not (tmp_path / "log" / PINNED).exists()
