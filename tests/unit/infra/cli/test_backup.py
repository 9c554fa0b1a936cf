"""Commands for backup, restore, salvage and setting aside: each refusal is one line, and loses nothing."""

import asyncio
import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import typer
from sqlalchemy import text
from typer.testing import CliRunner

from infra.cli import backup
from infra.db.database import Database
from infra.db.secret import note_log_name
from streams.embedded.embedded_log import EmbeddedLog
from streams.embedded.lock import DirectoryLock
from streams.embedded.marks import FILE, Marks
from streams.embedded.pinned import PINNED, pinned
from tests.damage.files import cut, each, flipped
from tests.unit.infra.conftest import app_of, invoked
from topics.errors import EarshotError

pytestmark = pytest.mark.slow


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[typer.Typer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    made = app_of(backup)
    before = os.umask(0o022)
    yield made
    os.umask(before)


async def write(data: Path) -> None:
    """Create the data directory of a stopped service."""
    (data / "tables").mkdir(parents=True)
    (data / "voices" / "Kim").mkdir(parents=True)
    (data / "voices" / "Kim" / "one.ogg").write_bytes(b"voice")
    (data / "uploads").mkdir()
    (data / "uploads" / "one").write_bytes(b"on its way")
    marks = Marks(data / "tables" / FILE)
    database = Database(f"sqlite+aiosqlite:///{data}/earshot.db")
    await database.migrate()
    log = EmbeddedLog.open(data / "log", marks=marks)
    await note_log_name(database, log.store.name())
    database.note_change = marks.note_change
    async with database.writing() as connection:
        await connection.execute(text("INSERT INTO organizations VALUES ('1', 'Farm', 0)"))
    await database.close()
    log.declare("t", 1)
    for number in range(20):
        await log.append("t", 0, b"key", b"%d" % number * 3000)
    await log.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    asyncio.run(write(tmp_path / "data"))
    return tmp_path / "data"


def refused(app: typer.Typer, *words: str | Path) -> str:
    """Run a command that refuses, and return its one line; the working directory stays unchanged."""
    before = tree(Path())
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(result.exception, EarshotError), result.output
    assert tree(Path()) == before
    assert "\n" not in str(result.exception)
    return str(result.exception)


def tree(directory: Path) -> dict[Path, bytes]:
    """Return the files except locks and those that SQLite creates for reading."""
    there = (file for file in directory.rglob("*") if file.is_file() and file.name not in ("lock", "LOCK"))
    return {file: file.read_bytes() for file in there if not file.name.endswith(("-shm", "-wal"))}


def test_unusable_backup_target_is_rejected(app: typer.Typer, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for target in "file", "full":
        assert f"{target} is there already: a backup needs a new directory" in refused(app, "backup", target)
    assert "none is not a directory" in refused(app, "backup", "none/one")
    assert "is inside of what is backed up" in refused(app, "backup", "data/voices/one")
    (tmp_path / "one.incomplete").mkdir()
    assert "one.incomplete exists: remove it" in refused(app, "backup", "one")
    (tmp_path / "empty").mkdir()
    invoked(app, "backup", "empty")


def test_backup_on_full_disk_names_both_files(app: typer.Typer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copyfile(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    said = refused(app, "backup", "one")
    assert said.startswith("the backup cannot be written: No space left on device (")
    assert "/pinned/" in said
    assert "one.incomplete/log/" in said.split(" to ")[1]


def test_commands_report_missing_data(app: typer.Typer) -> None:
    assert "there is nothing to back up in data: set EARSHOT_DATA" in refused(app, "backup", "one")
    assert "one is not a whole backup" in refused(app, "restore", "one")
    assert "there is nothing to salvage in data" in refused(app, "salvage")
    assert "There is nothing in data." in invoked(app, "set-aside", "--yes").stdout


def test_concurrent_backup_is_rejected(app: typer.Typer, data: Path) -> None:
    with pinned(data / "log"):
        before = set(data.parent.iterdir())
        result = CliRunner().invoke(app, ["backup", "one"])
        assert "another backup of the log in data/log is being made" in str(result.exception)
        assert set(data.parent.iterdir()) == before


def test_backup_removes_leftovers_of_killed_backup(app: typer.Typer, data: Path) -> None:
    (data / "log" / PINNED).mkdir()
    (data / "log" / PINNED / "000001.sst").write_bytes(b"old")
    invoked(app, "backup", "one")
    assert not (data / "log" / PINNED).exists()
    assert not (data.parent / "one" / "log" / "000001.sst").exists()


def test_restore_removes_leftovers_of_killed_restore(app: typer.Typer, data: Path) -> None:
    invoked(app, "backup", "one")
    (data / ".unfinished-1").mkdir()
    (data / ".unfinished-1" / "earshot.db").write_bytes(b"half")
    invoked(app, "restore", "one", "--set-aside")
    assert not list(data.rglob(".unfinished-*"))


def drop_last(what: str) -> Callable[[Path], None]:
    """Make the marks expect one more than there is."""

    def damage(data: Path) -> None:
        marks = Marks(data / "tables" / FILE)
        marks.keep()
        getattr(marks, f"note_{what}")(getattr(marks, what) + 1)
        marks.close()

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (drop_last("group"), "the log in data/log/log ends at write"),
        (drop_last("change"), "earshot.db ends at change 1, and there were 2"),
        (each("log/log", shutil.rmtree), "the log in data/log/log is missing"),
        (each("log/log/CURRENT"), "CURRENT is missing: `earshot restore BACKUP"),
        (each("earshot.db"), "earshot.db is missing"),
    ],
)
def test_backup_rejects_damaged_data(app: typer.Typer, data: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(data)
    assert re.search(said, refused(app, "backup", "one"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (each("backup.json"), "is not a whole backup: it has no backup.json that can be read"),
        (each("backup.json", partial(cut, size=1)), "is not a whole backup"),
        (each("voices/Kim/one.ogg"), "is not whole: voices/Kim/one.ogg is missing"),
        (each("earshot.db", partial(cut, size=1)), "is not whole: earshot.db is missing, or not of"),
        (each("*.blob", flipped), "is damaged: the log in"),
        (each("*.sst", flipped), "is damaged: the log in"),
    ],
)
def test_restore_rejects_incomplete_or_damaged_backup(
    app: typer.Typer, data: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    invoked(app, "backup", "one")
    damage(tmp_path / "one")
    assert said in refused(app, "restore", "one", "--set-aside")


def test_restore_neither_overwrites_nor_touches_running_service(app: typer.Typer, data: Path, tmp_path: Path) -> None:
    invoked(app, "backup", "one")
    assert f"`earshot restore {tmp_path}/one --set-aside` renames" in refused(app, "restore", "one")
    lock = DirectoryLock(data / "log")
    for words in ["restore", "one", "--set-aside"], ["salvage"], ["set-aside", "--yes"]:
        assert f"is in use by process {os.getpid()}: stop the service first" in refused(app, *words)
    lock.release()


def test_restore_fills_empty_mounted_volume(app: typer.Typer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoked(app, "backup", "one")
    shutil.rmtree(data)
    (data / "voices").mkdir(parents=True)
    rmdir = Path.rmdir

    def busy(path: Path) -> None:
        if path == Path("data", "voices"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", busy)
    invoked(app, "restore", "one")
    assert (data / "voices" / "Kim" / "one.ogg").read_bytes() == b"voice"


@pytest.mark.parametrize(
    ("mounted", "words"),
    [("uploads", ["restore", "one", "--set-aside"]), ("uploads", ["set-aside", "--yes"]), ("tables", ["salvage"])],
)
def test_failed_set_aside_is_undone(
    app: typer.Typer, data: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, words: list[str]
) -> None:
    """A part of the data directory may be a mounted volume, which cannot be renamed."""
    invoked(app, "backup", "one")
    (data / "log" / "log" / "CURRENT").unlink()
    rename = Path.rename

    def busy(path: Path, target: Path) -> Path:
        if path == Path("data", mounted):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", busy)
    assert f"data/{mounted} cannot be set aside: Device or resource busy" in refused(app, *words)
    assert not list(data.rglob("set-aside-*"))


def test_restore_rejects_different_broker_setting(
    app: typer.Typer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoked(app, "backup", "one")
    monkeypatch.setenv("EARSHOT_BROKER", "kafka://k:9092")
    said = "the backup is of a service on embedded, and EARSHOT_BROKER is kafka: set it as it was"
    assert said in refused(app, "restore", "one", "--set-aside")


def test_backup_reports_data_stored_elsewhere(
    app: typer.Typer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARSHOT_BROKER", "kafka://k:9092")
    said = invoked(app, "backup", "one").stdout
    assert "one holds earshot.db, voices of data" in said
    assert "Kafka keeps its own" in said
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgresql://someone:secret@db/earshot")
    monkeypatch.setenv("EARSHOT_VOICES_URL", "s3://bucket/voices")
    (data / "models").mkdir()
    (data / "models" / "current").write_text("some-model")
    said = invoked(app, "backup", "two").stdout
    assert "two holds models of data" in said
    assert "save PostgreSQL with pg_dump" in said
    assert "they are at s3://bucket/voices" in said
    assert "secret" not in said


def test_restore_follows_configured_paths(
    app: typer.Typer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "log", "earshot.db", "voices":
        (tmp_path / "else").mkdir(exist_ok=True)
        (data / name).rename(tmp_path / "else" / name)
    monkeypatch.setenv("EARSHOT_BROKER", f"embedded://{tmp_path}/else/log")
    monkeypatch.setenv("EARSHOT_DATABASE_URL", f"sqlite:///{tmp_path}/else/earshot.db")
    monkeypatch.setenv("EARSHOT_VOICES_URL", str(tmp_path / "else" / "voices"))
    invoked(app, "backup", "one")
    before = tree(tmp_path / "else")
    said = invoked(app, "restore", "one", "--set-aside").stdout
    assert said.count("What was there is in") == 3  # For the data directory, the log and the database.
    after = tree(tmp_path / "else")
    assert all(data in after.values() for data in before.values())
    assert after[tmp_path / "else" / "voices" / "Kim" / "one.ogg"] == b"voice"


def test_set_aside_moves_everything_but_kafka(app: typer.Typer, data: Path) -> None:
    (data / "kafka").mkdir()
    (data / "kafka" / "somebody").write_text("else's")
    before = tree(data)
    declined = CliRunner().invoke(app, ["set-aside"], input="n\n")
    assert declined.exit_code == 1
    assert tree(data) == before
    said = invoked(app, "set-aside", "--yes").stdout
    (aside,) = data.glob("set-aside-*")
    assert f"What was there is in data/{aside.name}." in said
    assert sorted(path.name for path in data.iterdir()) == ["kafka", "log", aside.name]
    assert {file.relative_to(aside) for file in tree(aside)} | {Path("kafka/somebody")} == {
        file.relative_to(data) for file in before
    }
