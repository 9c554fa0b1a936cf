"""Rounds of erasure are due after running time, restarts included."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from structlog.testing import capture_logs

from infra.db.database import Database
from infra.service import data_directory
from infra.service import erasure as module
from infra.service.erasure import keep_erasing, repeat
from infra.settings import Lane, Settings
from streams.embedded.errors import LogError
from streams.embedded.pinned import PINNED, pinned, unpin
from streams.node.node import Node
from tests.waiting import until
from topics.errors import Unavailable

HOUR = 3600.0
NOTE_SECONDS = 300.0


class Clock:
    """A monotonic clock that only sleepers move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    # The modules themselves are those of all threads.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr(module, "NOTE_SECONDS", NOTE_SECONDS)
    return clock


async def life(clock: Clock, file: Path, seconds: float, failures: int = 0) -> list[float]:
    """Run for some seconds; return after how many of them a round began."""
    began, ends, rounds = clock.now, clock.now + seconds, list[float]()

    async def erase() -> None:
        rounds.append(clock.now - began)
        clock.now += 60
        if len(rounds) <= failures:
            raise Unavailable("the disk is full")

    task = asyncio.ensure_future(repeat(file, 3 * HOUR, erase))
    while clock.now < ends:
        await asyncio.tasks.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return rounds


async def test_short_lives_add_up(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "erasure"
    assert await life(clock, file, 2 * HOUR) == []
    clock.now += 100 * HOUR
    (first,) = await life(clock, file, 2 * HOUR)
    assert first == pytest.approx(HOUR, abs=NOTE_SECONDS)
    (second,) = await life(clock, file, 2.5 * HOUR)
    assert second == pytest.approx(2 * HOUR, abs=2 * NOTE_SECONDS)


async def test_round_that_was_cut_off_or_failed_is_repeated(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "erasure"
    with capture_logs() as lines:
        rounds = await life(clock, file, 4 * HOUR, failures=2)
    assert [line["event"] for line in lines] == ["data.not_erased", "data.not_erased", "data.erased"]
    assert rounds[0] == 3 * HOUR
    assert rounds[1] - rounds[0] == pytest.approx(module.AGAIN_SECONDS, abs=100)


async def test_stop_notes_time_since_last_note(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=lambda seconds: asyncio.Event().wait()))
    file = tmp_path / "erasure"
    for ran in (100, 200):
        task = asyncio.ensure_future(repeat(file, HOUR, lambda: asyncio.sleep(0)))
        await asyncio.sleep(0)
        clock.now += 100
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert float(file.read_text()) == ran


async def test_round_that_the_process_did_not_survive_begins_with_the_next(clock: Clock, tmp_path: Path) -> None:
    file, noted = tmp_path / "erasure", ""

    async def die() -> None:
        nonlocal noted
        noted = file.read_text()
        raise asyncio.CancelledError

    with suppress(asyncio.CancelledError):
        await repeat(file, 3 * HOUR, die)
    file.write_text(noted)  # A killed process notes nothing more.
    assert await life(clock, file, NOTE_SECONDS / 2) == [0]


@pytest.mark.parametrize("content", ["", "x", "nan", "-5", "\0" * 8])
async def test_round_is_due_if_time_is_unreadable(clock: Clock, tmp_path: Path, content: str) -> None:
    (tmp_path / "erasure").write_text(content)
    assert await life(clock, tmp_path / "erasure", 2.9 * HOUR) == [0]


async def test_first_lane_erases_the_database_of_all(tmp_path: Path) -> None:
    machine, erased = Settings(data=tmp_path, lanes=2, erase_seconds=1), []
    for number in range(2):
        node, database = mock.AsyncMock(spec=Node), mock.AsyncMock(spec=Database)
        lane = machine.of_lane(Lane(number, 2, 1))
        (directory := tmp_path / str(number)).mkdir()
        (directory / module.FILE).write_text("1.0")
        with capture_logs() as lines:
            task = asyncio.ensure_future(keep_erasing(lane, directory, node, database))
            await until(lambda: bool(lines))
            task.cancel()
        assert [line["event"] for line in lines] == ["data.erased"]
        erased.append((node.erase.call_count, database.erase.call_count))
    assert erased == [(1, 1), (1, 0)]


def test_backup_that_takes_too_long_fails(tmp_path: Path) -> None:
    unpin(tmp_path, 60)
    (tmp_path / "log").mkdir()
    for name, content in {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"", "000004.sst": b"x"}.items():
        (tmp_path / "log" / name).write_bytes(content)
    taken = pinned(tmp_path)
    path = taken.__enter__()
    unpin(tmp_path, 60)
    assert (path / "000004.sst").exists()
    os.utime(path / "CURRENT", (0, 0))
    unpin(tmp_path, 60)
    assert [file.name for file in path.iterdir()] == ["lock"]
    with pytest.raises(LogError, match="took too long: the service must erase"):
        taken.__exit__(None, None, None)
    (tmp_path / PINNED).mkdir(exist_ok=True)
    (tmp_path / PINNED / "000004.sst").write_bytes(b"left by a killed backup")
    unpin(tmp_path, 60)
    assert [file.name for file in (tmp_path / PINNED).iterdir()] == ["lock"]


def test_start_reports_what_was_set_aside_and_removes_unfinished_work(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    with capture_logs() as lines:
        data_directory.tidy(settings)
    assert lines == []
    aside = [tmp_path / "log" / "set-aside-20260101T000000Z", tmp_path / "set-aside-20260101T000000Z"]
    aside.append(tmp_path / "tables" / "partitions" / "0.damaged-1")
    left = [tmp_path / ".unfinished-a", tmp_path / "log" / ".unfinished-b"]
    for path in (*aside, *left):
        path.mkdir(parents=True)
    with capture_logs() as lines:
        data_directory.tidy(settings)
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("data.set_aside", "warning")
    assert sorted(line["paths"]) == sorted(map(str, aside))
    assert "deleted data stays in these" in line["note"]
    assert not any(path.exists() for path in left)
