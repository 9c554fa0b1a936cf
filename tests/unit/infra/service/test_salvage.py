"""Damaged data starts again after a salvage, with everything readable, and nothing is deleted."""

import asyncio
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from infra.db.intact import check
from infra.service.data_directory import LEFT_OUT
from infra.service.salvage import salvage
from infra.settings import Settings
from streams.embedded.marks import FILE
from tests.damage.campaign import EMPTY_FILES, READY, SILENT, start, write
from tests.damage.files import cut, each
from tests.damage.story import ENDS, ROWS, Story
from topics.errors import ServiceError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Story, Path]]:
    """Stories by kind of end, with their data directories, laid out as the service does."""
    scratch, stories = tmp_path_factory.mktemp("story"), {}
    for end in ENDS:
        directory = scratch / end
        stories[end] = write(directory, end, "--done"), directory
        (directory / "tables").mkdir()
        (directory / "partitions").rename(directory / "tables" / "partitions")
        (directory / "tables" / "partitions" / FILE).rename(directory / "tables" / FILE)
    return stories


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(end: str, written: dict[str, tuple[Story, Path]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[end][1], tmp_path / "data"))


@pytest.fixture
def story(end: str, written: dict[str, tuple[Story, Path]]) -> Story:
    return written[end][0]


def content(directory: Path) -> dict[str, bytes]:
    """Return the non-empty files of a directory."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and file.stat().st_size and file.name not in EMPTY_FILES
    }


def salvaged(data: Path) -> list[str]:
    """Salvage, and check that each previous file is set aside or kept."""
    before = content(data)
    lines = salvage(Settings(data=data))
    after = content(data)
    (aside,) = data.glob("set-aside-*")
    for name, was in before.items():
        assert was in (after.get(f"{aside.name}/{name}"), after.get(name)), name
    assert lines[-1] == f"What was there is in {aside}."
    assert (data / LEFT_OUT).exists() is not (data / "tables" / "partitions").exists(), (
        "no start reports them as missing"
    )
    return lines


no_current, no_manifest, no_wal = map(each, ("CURRENT", "MANIFEST-*", "*.log"))
no_tables, no_blobs = map(each, ("*.sst", "*.blob"))


def cut_wal(log: Path) -> None:
    file = max(log.glob("*.log"))
    cut(file, file.stat().st_size // 2)


@pytest.mark.parametrize(
    ("end", "damage"),
    [
        *(("kill -9", damage) for damage in (no_current, no_manifest, cut_wal, no_wal, shutil.rmtree)),
        *(("SIGTERM", damage) for damage in (no_current, no_manifest, no_tables, no_blobs, shutil.rmtree)),
    ],
)
def test_damaged_log_is_salvaged_from_tables(data: Path, story: Story, damage: Callable[[Path], object]) -> None:
    before = content(data / "log" / "log")
    damage(data / "log" / "log")
    assert content(data / "log" / "log") != before
    print("\n".join(salvaged(data)))
    assert asyncio.run(start(data, story)) == READY


TOPICS_LOST = "No record of the log can be read: its list of topics is lost, and all audio with it."


@pytest.mark.parametrize(
    ("end", "damage", "said"),
    [
        ("kill -9", cut_wal, r"The log can be read to write \d+ of \d+: what came later is lost\."),
        ("SIGTERM", no_tables, TOPICS_LOST),
    ],
)
def test_losses_of_log_are_reported(data: Path, damage: Callable[[Path], object], said: str) -> None:
    """Also if no position in a table says that there were more records."""
    damage(data / "log" / "log")
    if said == TOPICS_LOST:
        (data / "tables" / FILE).unlink()
    lines = salvaged(data)
    assert any(re.fullmatch(said, line) for line in lines)
    assert any("that may lack some of it" in line for line in lines)


def test_salvage_without_tables_reads_intact_part_of_log(data: Path, story: Story) -> None:
    shutil.rmtree(data / "tables" / "partitions")
    no_current(data / "log" / "log")
    lines = salvaged(data)
    assert any("from what is left of the log" in line for line in lines)
    assert asyncio.run(start(data, story)) == READY


@pytest.mark.parametrize("end", ["kill -9"])
def test_unrecoverable_sessions_are_reported_lost(data: Path, story: Story) -> None:
    shutil.rmtree(data / "tables" / "partitions")
    no_wal(data / "log" / "log")
    lines = salvaged(data)
    assert sum("nothing can be read of its sessions" in line for line in lines) == 4
    assert asyncio.run(start(data, story)) == SILENT


def flip_rows(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damaged = bytearray(file.read_bytes())
    at = damaged.index(b"11:nnnn")
    page = at - at % 4096
    damaged[page : page + 64] = os.urandom(64)
    file.write_bytes(damaged)


def test_readable_rows_of_damaged_database_are_kept(data: Path) -> None:
    database = data / "earshot.db"
    flip_rows(database)
    with pytest.raises(ServiceError, match="is damaged"):
        check(database, 0, True)
    lines = salvaged(data)
    check(database, 0, True)
    with closing(sqlite3.connect(database)) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM organizations").fetchone()
    assert 0 < kept < ROWS
    assert any(f"{kept} organizations" in line for line in lines)
    assert "All keys are lost: `earshot key rotate PROJECT` and `earshot org rotate-key ORG` make new ones." in lines


def test_lost_database_is_recreated_and_log_kept(data: Path) -> None:
    for file in data.glob("earshot.db*"):
        file.unlink()
    log = content(data / "log" / "log")
    lines = salvaged(data)
    assert "All organizations are lost: the next start makes a demo project, as the first one did." in lines
    check(data / "earshot.db", 0, True)
    assert content(data / "log" / "log") == log


def test_intact_data_is_left_unchanged(data: Path) -> None:
    shutil.rmtree(data / "tables" / "partitions" / "0.db")  # A start recreates it.
    before = content(data)
    with pytest.raises(ServiceError, match="nothing was changed"):
        salvage(Settings(data=data))
    with pytest.raises(ServiceError, match="the log is on Kafka"):
        salvage(Settings(data=data, broker="kafka://k:9092"))
    assert content(data) == before
    assert not list(data.glob("set-aside-*"))


@pytest.mark.parametrize("end", ["kill -9"])
def test_second_salvage_names_no_session_again(data: Path, story: Story) -> None:
    cut_wal(data / "log" / "log")
    first = salvage(Settings(data=data))
    asyncio.run(start(data, story))
    (data / "tables").mkdir(exist_ok=True)
    (data / "partitions").rename(data / "tables" / "partitions")
    no_current(data / "log" / "log")
    second = salvage(Settings(data=data))
    assert any("that may lack some of it" in line for line in first)
    assert not any(said in line for said in (": lost offset", "that may lack some of it") for line in second)


def test_repeated_damage_is_salvaged_again(data: Path, story: Story) -> None:
    for _ in range(2):
        no_current(data / "log" / "log")
        salvage(Settings(data=data))
    assert len(list(data.glob("set-aside-*"))) == 2
    assert asyncio.run(start(data, story)) == READY
