"""Migrations, a database that does not answer, and one with missing parts."""

import asyncio
import contextlib
import functools
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, make_url, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from infra.db import database, intact
from infra.db.database import Database
from infra.db.intact import check
from infra.db.schema import REVISION, metadata
from infra.errors import WrongSetting
from tests.damage.files import cut, emptied, flipped
from tests.unit.infra.conftest import AWAY, SQLITE, run
from topics.errors import DirectoryDown, ServiceError, Unavailable


def test_code_names_latest_revision() -> None:
    assert ScriptDirectory(str(database.MIGRATIONS)).get_current_head() == REVISION


@pytest.mark.parametrize("make", [database.upgrade, database.run_revisions])
async def test_upgrade_and_revisions_create_same_schema(opened: Database, make: Callable[[Connection], None]) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with opened.writing() as connection:
        await connection.run_sync(make)
    async with opened.reading() as connection:
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == REVISION
        assert await connection.run_sync(differences) == []


async def test_concurrent_starts_migrate_once(others: list[Database], opened: Database) -> None:
    await asyncio.gather(*(one.migrate() for one in (opened, *others)))
    async with opened.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1


@pytest.mark.parametrize(("refusals", "refused"), [(3, False), (1000, True)])
def test_busy_wal_switch_is_retried_until_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, refused: bool
) -> None:
    # SQLite fails without waiting if two connections switch a file to WAL at once: a few of a hundred tries.
    class Busy(sqlite3.Connection):
        left = refusals

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if "journal_mode" in sql and self.left:
                self.left -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            return super().execute(sql, *parameters)

    if refused:
        monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Busy))
    with pytest.raises(DirectoryDown) if refused else contextlib.nullcontext():
        run(f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}", Database.migrate)


async def test_failed_revision_is_rolled_back(opened: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection) -> None:
        upgrade(connection)
        connection.execute(text("SELECT * FROM nowhere"))

    upgrade = database.upgrade
    monkeypatch.setattr(database, "upgrade", broken)
    with pytest.raises(DirectoryDown, match="nowhere"):
        await opened.migrate()
    async with opened.reading() as connection:
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == []


@pytest.mark.parametrize("revision", ["9999", "0013"])
async def test_database_of_other_version_is_rejected(database: Database, revision: str) -> None:
    async with database.writing() as connection:
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    with pytest.raises(WrongSetting, match=f"revision {revision}, this version reads {REVISION} only"):
        await database.migrate()
    assert await database.revision() == revision


@pytest.mark.slow
def test_current_database_needs_no_alembic(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}"
    run(url, Database.migrate)
    program = (
        "import asyncio, sys; from infra.db.database import Database; opened = Database(sys.argv[1])\n"
        "async def main(): await opened.migrate(); await opened.close()\n"
        "asyncio.run(main()); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == 0


@SQLITE
async def test_sqlite_pragmas_are_set(database: Database) -> None:
    async with database.reading() as connection:
        for name, value in (("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 2), ("secure_delete", 1)):
            assert await connection.scalar(text(f"PRAGMA {name}")) == value


async def test_queued_writers_leave_connections_for_readers(monkeypatch: pytest.MonkeyPatch, opened: Database) -> None:
    monkeypatch.setattr(database, "QUEUE_SECONDS", 0.05)
    ended = asyncio.Event()

    async def write(opened: Database) -> None:
        async with opened.writing():
            await ended.wait()

    await opened.migrate()
    writers = [asyncio.create_task(write(opened)) for _ in range(30)]
    failed, (first,) = await asyncio.wait(writers[:1], timeout=0)
    assert not failed
    async with opened.reading() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1
    failed, _ = await asyncio.wait(writers[1:])
    assert {str(one.exception()) for one in failed} == {"the database does not answer"}
    notes = {getattr(one.exception(), "__notes__", [""])[0] for one in failed}
    assert {note.rpartition(": ")[2] for note in notes} == {"TimeoutError"}
    ended.set()
    await first


@pytest.mark.parametrize("missing", ["nowhere", "organizations"])
async def test_errors_do_not_contain_written_values(missing: str, database: Database) -> None:
    """Clients get the sentence; the log has the cause."""
    statement = text(f"INSERT INTO {missing} (name) VALUES (:name)")
    with pytest.raises((DirectoryDown, IntegrityError)) as caught:
        async with database.writing() as connection:
            await connection.execute(statement, {"name": "Persephone"})
    told, logged = str(caught.value), str(caught.value.__cause__)
    if missing == "nowhere":
        assert told == "the database does not answer"
        assert missing in logged
    assert "Persephone" not in told


async def test_error_rolls_back_transaction(database: Database) -> None:
    with contextlib.suppress(KeyError):
        async with database.writing() as connection:
            await connection.execute(text("INSERT INTO organizations VALUES ('1', 'one', 0)"))
            raise KeyError
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM organizations")) == 0


@SQLITE
@pytest.mark.parametrize("writes", [True, False])
async def test_cancelled_caller_leaves_no_open_transaction(tmp_path: Path, writes: bool, database: Database) -> None:
    """The statement goes on in its thread, and the error kept here holds its cursor."""
    loop, begun, end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def held() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return end.wait(60)

    async def ask() -> None:
        async with database.writing() if writes else database.reading() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.create_function("held", 0, held)
            await connection.execute(text("SELECT held() FROM sqlite_schema"))

    asking = asyncio.create_task(ask())
    await begun.wait()
    asking.cancel()
    end.set()
    (error,) = await asyncio.gather(asking, return_exceptions=True)
    assert isinstance(error, asyncio.CancelledError)
    other = sqlite3.connect(tmp_path / "control" / "earshot.db", isolation_level=None, timeout=0)
    with contextlib.closing(other):
        other.execute("INSERT INTO organizations VALUES ('1', 'one', 0)")
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_lock_held_by_another_writer_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    url = f"sqlite+aiosqlite:///{tmp_path / 'earshot.db'}"
    run(url, Database.migrate)
    other = sqlite3.connect(tmp_path / "earshot.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def story(opened: Database) -> None:
        await opened.migrate()
        async with opened.writing():
            raise AssertionError("two writers")

    with pytest.raises(DirectoryDown, match="locked"):
        run(url, story)
    other.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite+aiosqlite:///{}/earshot.db", "not a database"),
        ("sqlite+aiosqlite:///{}/wrong/earshot.db", "cannot be opened\n{}/wrong/earshot.db: "),
        (AWAY, "does not answer"),
        (
            "postgresql+asyncpg://u@127.0.0.1:1/n?ssl=verify-full&sslrootcert={}/no.crt",
            "does not answer\n.*No such file or directory",
        ),
    ],
)
def test_unusable_database_is_reported(tmp_path: Path, url: str, said: str) -> None:
    (tmp_path / "earshot.db").write_bytes(b"not a database" * 100)
    with pytest.raises(DirectoryDown, match=said.format(tmp_path)):
        run(url.format(tmp_path), Database.migrate)
    assert not (tmp_path / "wrong").exists(), "a missing directory is not made"


@pytest.mark.parametrize("query", ["port=x", "host=a&host=b"])
def test_url_that_sqlalchemy_refuses_is_a_wrong_setting(query: str) -> None:
    with pytest.raises(WrongSetting, match=r"EARSHOT_DATABASE_URL: cannot be used \(.*port"):
        Database(f"postgresql+asyncpg://u@h/n?{query}")


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_connections_that_postgresql_ended_are_replaced(opened: Database, database_url: str) -> None:
    url = make_url(database_url)
    allow = f'ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS'
    operator = create_async_engine(url.set(database="template1"), isolation_level="AUTOCOMMIT")

    async def asked() -> object:
        async with opened.reading() as connection:
            return await connection.scalar(text("SELECT 1"))

    assert await asked() == 1
    async with operator.connect() as connection:
        await connection.execute(text(f"{allow} false"))
        try:
            ended = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
            await connection.execute(ended, {"name": url.database})
            with pytest.raises(DirectoryDown) as refused:
                await asked()
        finally:
            await connection.execute(text(f"{allow} true"))
    assert str(refused.value) == "the database does not answer"
    assert await asked() == 1
    await operator.dispose()


def test_repr_hides_password() -> None:
    assert "secret" not in repr(Database(AWAY))


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (sqlite3.SQLITE_CORRUPT, DirectoryDown, "the database is damaged"),
        (sqlite3.SQLITE_READONLY, DirectoryDown, "the database cannot be written"),
        (sqlite3.SQLITE_IOERR | 256, DirectoryDown, "the disk under the database fails"),
        (sqlite3.SQLITE_FULL, Unavailable, "the disk under the database is full"),
    ],
)
async def test_sqlite_errors_name_cause_and_file(
    tmp_path: Path, code: int, kind: type[ServiceError], said: str
) -> None:
    opened = Database(f"sqlite+aiosqlite:///{tmp_path}/earshot.db")
    await opened.migrate()
    error = sqlite3.OperationalError("as the driver says it")
    error.sqlite_errorcode = code

    async def fail() -> None:
        async with opened.writing():
            raise error

    with pytest.raises(kind, match=f"^{said}\n") as caught:
        await fail()
    assert caught.value.__notes__ == [f"{tmp_path}/earshot.db: as the driver says it"]
    seen = [opened.failure]
    async with opened.reading():  # Possibly only writes fail.
        seen.append(opened.failure)
    async with opened.writing():
        pass
    assert [*seen, opened.failure] == [said, said, None]
    await opened.close()


#: Changes in the database that `killed` returns.
CHANGES = 5


async def killed(directory: Path) -> Path:
    """Return a database in the state after a kill, with changes in its WAL."""
    database = Database(f"sqlite+aiosqlite:///{directory}/open.db")
    await database.migrate()
    numbers: list[int] = []
    database.note_change = numbers.append
    for number in range(CHANGES):
        async with database.writing() as connection:
            row = {"id": str(number), "name": str(number) * 3000, "at": 0}
            await connection.execute(text("INSERT INTO organizations VALUES (:id, :name, :at)"), row)
    assert numbers == [*range(1, CHANGES + 1)]
    for suffix in "", "-wal":
        shutil.copy(directory / f"open.db{suffix}", directory / f"killed.db{suffix}")
    await database.close()
    for suffix in "-wal", "-shm":
        assert not (directory / f"open.db{suffix}").exists()
    return directory / "killed.db"


async def test_intact_database_passes_check(tmp_path: Path) -> None:
    for file in await killed(tmp_path), tmp_path / "open.db":
        check(file, CHANGES, True)
        check(file, 0, False)
        with pytest.raises(
            ServiceError, match=f"ends at change {CHANGES}, and there were {CHANGES + 1}: .earshot restore"
        ):
            check(file, CHANGES + 1, True)
    check(tmp_path / "none.db", 0, False)


CUT = partial(cut, size=5000)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("killed.db-wal", damage) for damage in (Path.unlink, emptied, CUT, flipped)),
        *(("open.db", damage) for damage in (Path.unlink, emptied, CUT)),
    ],
)
async def test_check_detects_damage(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    await killed(tmp_path)
    file, wal = tmp_path / name.removesuffix("-wal"), name.endswith("-wal")
    damage(tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.glob(name)}
    said = r"(ends at change \d, and there were 5|is damaged .*)" if wal else "is (missing|empty|damaged).*"
    with pytest.raises(ServiceError, match=f"{file.name} {said}: .earshot restore BACKUP"):
        check(file, CHANGES if wal else 0, True)
    assert all(path.read_bytes() == content for path, content in before.items())


async def test_large_database_is_checked_without_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "some.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE t (a, b); CREATE INDEX i ON t (a); INSERT INTO t VALUES (1, 2); PRAGMA writable_schema = ON;"
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON t (b)' WHERE name = 'i'"
        )
    with pytest.raises(ServiceError, match=r"is damaged .*index i"):
        check(file, 0, False)
    monkeypatch.setattr(intact, "THOROUGH_BYTES", 0)
    check(file, 0, False)


async def test_check_ends_early_once_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await killed(tmp_path)
    monkeypatch.setattr(intact, "PROGRESS_STEPS", 1)
    check(tmp_path / "open.db", CHANGES + 1, True, lambda: True)


async def test_check_reports_non_database_file_as_damaged(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    file.write_bytes(b"nothing" * 1000)
    with pytest.raises(ServiceError, match=r"is damaged .*not a database"):
        check(file, 0, False)
