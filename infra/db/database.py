"""The control plane's database: connections, transactions and migrations."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from weakref import WeakSet

from sqlalchemy import Connection, event, inspect, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from infra.db.erasure import BUSY_SECONDS, checkpoint, note_deletion, vacuum
from infra.db.schema import REVISION, metadata
from infra.errors import WrongSetting
from infra.extras import needed_for
from topics.errors import DirectoryDown, ServiceError, Unavailable

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS: Final = Path(__file__).parent / "migrations"
CONNECT_SECONDS: Final = 2
BUSY_PAUSE_SECONDS: Final = 0.01
#: How long a writer waits for other writers of this process: sixty at once on a slow disk take several seconds.
QUEUE_SECONDS: Final = 30
COMMAND_SECONDS: Final = 30
#: Seconds between attempts of a use that failed, and without other failures before one.
TRY_SECONDS: Final = 5
#: How often `scrub` tries.
SCRUBS: Final = 5
#: Tables whose deleted rows must not stay in the files.
SCRUBBED: Final = "speakers, samples, own_sounds, own_marks, destinations"
#: Seconds after which a write that met a full disk may be retried.
FULL_SECONDS: Final = 10
#: Advisory lock that serializes writers on PostgreSQL, as SQLite does by itself.
LOCK: Final = 0x45415253
#: A row of `secrets`, see `infra.db.secret`.
COUNT_CHANGE: Final = text(
    "INSERT INTO secrets (name, value) VALUES ('changes', 1)"
    " ON CONFLICT (name) DO UPDATE SET value = secrets.value + 1 RETURNING value"
)


class Database:
    """SQLite (WAL, foreign keys) or PostgreSQL, by a URL that names the asynchronous driver."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._engine = _sqlite(self._url.database or "", url) if self._sqlite else _postgresql(url)
        # Writers of this process wait for each other here, so that they do not hold connections that readers could use.
        self._write_lock = asyncio.Lock()
        #: The last failure of each use ("reading", "writing") whose last attempt failed.
        self._failures: dict[str, str] = {}
        #: When a use last failed, monotonic.
        self._failed = 0.0
        #: Reads and writes that have ended, and their seconds, with those of waiting.
        self.uses, self.seconds = 0, 0.0
        #: Called with the number of each durable change of a SQLite database; None counts no changes.
        self.note_change: Callable[[int], None] | None = None

    def __repr__(self) -> str:
        return f"<Database {self._url.render_as_string(hide_password=True)}>"

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection for reading; on SQLite it never waits for a writer.

        Raises:
            DirectoryDown: the database does not answer.
        """
        with self._driver_errors():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction for one writer at a time; it commits completely or not at all.

        Raises:
            DirectoryDown: the database does not answer.
            Unavailable: its disk is full.
        """
        note, number = self.note_change, None
        with self._driver_errors("writing"):
            async with self._writer(), self._engine.connect() as connection:
                await connection.execution_options(writes=True)
                async with connection.begin():
                    if not self._sqlite:
                        await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
                    yield connection
                    if note is not None:
                        number = await connection.scalar(COUNT_CHANGE)
        if note is not None and number is not None:
            note(int(number))

    @asynccontextmanager
    async def _writer(self) -> AsyncIterator[None]:
        async with asyncio.timeout(QUEUE_SECONDS):
            await self._write_lock.acquire()
        try:
            yield
        finally:
            self._write_lock.release()

    @property
    def failure(self) -> str | None:
        """The cause of the last failed read or write; None if both succeeded last time."""
        return next(iter(self._failures.values()), None)

    @property
    def file(self) -> Path | None:
        return Path(self._url.database or "").absolute() if self._sqlite else None

    @property
    def place(self) -> str:
        """The absolute path of the database file, or its URL without the password."""
        if self._sqlite:
            return str(self.file)
        return self._url.render_as_string(hide_password=True)

    async def revision(self) -> str | None:
        """Return the revision of our tables, None if there are none; never creates a database.

        Raises:
            DirectoryDown: the database does not answer.
        """
        if self._sqlite and not await asyncio.to_thread(Path(self._url.database or "").exists):
            return None
        async with self.reading() as connection:
            return await connection.run_sync(_revision)

    async def check(self) -> bool:
        """Return whether the tables exist; never creates a database.

        Raises:
            DirectoryDown: the database does not answer.
            WrongSetting: another version made the database.
        """
        revision = await self.revision()
        if revision not in (None, REVISION):
            fault = f"the database is at revision {revision}, this version reads {REVISION} only"
            raise WrongSetting("database_url", f"{fault}: start the version that made it, or name another database")
        return revision is not None

    async def clock_ahead_seconds(self) -> float:
        """Return how far this machine's clock is ahead of the database's: 0 for a file.

        Raises:
            DirectoryDown: the database does not answer.
        """
        if self._sqlite:
            return 0.0
        async with self.reading() as connection:
            began = time.time()
            there = await connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
        return (began + time.time()) / 2 - float(there or 0)

    async def migrate(self) -> None:
        """Migrate the tables. If they are up to date, this only queries the revision.

        Raises:
            DirectoryDown: the database does not answer.
            WrongSetting: another version made the database.
        """
        if self._sqlite:
            with self._driver_errors():
                await asyncio.to_thread(_write_ahead, self._url.database or "")
        if await self.check():
            return
        async with self.writing() as connection:
            await connection.run_sync(upgrade)

    async def scrub(self) -> None:
        """Remove deleted embeddings and names of speakers from the database's files, as far as the database can.

        SQLite overwrites deleted rows with zeros (`secure_delete`); this call empties its write-ahead log. If a long
        read prevents that, the next call does it, or the last connection to close.

        PostgreSQL frees deleted rows for reuse. Until later rows overwrite them, the bytes remain there, and they
        remain in its write-ahead log, archives, replicas and backups.
        """
        with suppress(DirectoryDown, Unavailable, sqlite3.Error):
            if not self._sqlite:
                with self._driver_errors():
                    async with self._engine.connect() as connection:
                        await connection.execution_options(isolation_level="AUTOCOMMIT")
                        await connection.execute(text(f"VACUUM (SKIP_LOCKED) {SCRUBBED}"))
                return
            for _ in range(SCRUBS):
                if await asyncio.to_thread(checkpoint, self._url.database or ""):
                    return

    async def erase(self) -> None:
        """Erase all deleted rows from the database's files, as far as the database can; `scrub` leaves some.

        Raises:
            Unavailable: another program uses the database, or its disk has no room for a copy.
        """
        if self._sqlite:
            with self._driver_errors("erasing"):
                async with self._writer():
                    await asyncio.to_thread(vacuum, self._url.database or "")
        await self.scrub()

    async def keep_trying(self) -> None:
        """Repeat a use that failed a while ago, so that `failure` ends though nobody uses the database."""
        while True:
            await asyncio.sleep(TRY_SECONDS)
            quiet = time.monotonic() - self._failed > TRY_SECONDS
            for use, again in ("reading", self.reading), ("writing", self.writing):
                if quiet and use in self._failures:
                    with suppress(DirectoryDown, Unavailable):
                        async with again() as connection:
                            await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        await self._engine.dispose()

    @contextmanager
    def _driver_errors(self, use: str = "reading") -> Iterator[None]:
        """Translate driver errors into ours, except violated constraints, which callers interpret.

        Clients get the message. A note for operators adds the file and the driver's message, which may name hosts and
        users.
        """
        began = time.monotonic()
        try:
            yield
        except IntegrityError:
            raise
        except (DBAPIError, sqlite3.Error, PoolTimeout, OSError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            failed = _failure(cause)
            said = (str(cause) or type(cause).__name__).splitlines()[0]
            failed.add_note(said if self.file is None else f"{self.file}: {said}")
            self._failures[use], self._failed = str(failed), time.monotonic()
            raise failed from cause
        else:
            self._failures.pop(use, None)
        finally:
            self.uses += 1
            self.seconds += time.monotonic() - began


class Store:
    """Part of the database's content, and the time. Every call of a store may raise DirectoryDown."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def _now(self) -> int:
        """Return the time in milliseconds."""
        return int(self._clock() * 1000)


def alembic(connection: Connection) -> Config:
    """Return alembic's configuration for our revisions, in the connection's transaction."""
    # Imported here because alembic takes a third of a second to import and is rarely needed.
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def upgrade(connection: Connection) -> None:
    """Run the missing revisions in the connection's transaction; create all tables at once if the database is empty."""
    if inspect(connection).get_table_names():
        run_revisions(connection)
        return
    # This saves the first start the third of a second that alembic takes; a test compares both ways.
    metadata.create_all(connection)
    connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION})


def run_revisions(connection: Connection) -> None:
    """Run the missing revisions one by one."""
    from alembic import command

    command.upgrade(alembic(connection), REVISION)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if revision is None else str(revision)


class _Connection(sqlite3.Connection):
    """A connection that ends its transaction when it closes.

    SQLite ends a transaction only after its last cursor. If a statement is cancelled, its connection is closed, but a
    traceback may still hold the cursor, and with it the file's lock or a stale snapshot.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def cursor(self, *args: Any) -> Any:
        cursor = super().cursor(*args)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        cursors = [*self._cursors]
        self._cursors.clear()  # A connection may be closed twice; cursors of a closed connection cannot be closed.
        for cursor in cursors:
            cursor.close()
        super().close()


def _postgresql(url: str) -> AsyncEngine:
    # asyncpg takes libpq's options of TLS, such as `sslrootcert`, in a URL only.
    place = make_url(url)
    files = {name: value for name, value in place.query.items() if name.startswith("ssl") and name != "ssl"}
    options: dict[str, Any] = {"timeout": CONNECT_SECONDS, "command_timeout": COMMAND_SECONDS}
    if files:
        options["dsn"] = f"postgresql://?{urlencode(files)}"
    try:
        with needed_for("a database on PostgreSQL"):
            return create_async_engine(
                place.difference_update_query(files),
                pool_pre_ping=True,
                pool_timeout=CONNECT_SECONDS,
                connect_args=options,
                hide_parameters=True,
            )
    except ArgumentError as error:
        raise WrongSetting("database_url", f"cannot be used ({error})") from error


def _sqlite(file: str, url: str) -> AsyncEngine:
    # With isolation_level None the driver begins no transaction; `_begin` does, also before reads and DDL.
    options = {"isolation_level": None, "timeout": BUSY_SECONDS, "factory": _Connection}
    engine = create_async_engine(url, connect_args=options, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    event.listen(engine.sync_engine, "after_cursor_execute", note_deletion)
    return engine


def _prepare(connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    for pragma in "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON":
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for another writer; BEGIN IMMEDIATE can.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _write_ahead(file: str) -> None:
    """Switch the file to a write-ahead log, so that readers do not wait for a writer; the file remembers it."""
    until = time.monotonic() + BUSY_SECONDS
    with closing(sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Two connections that switch at once each hold what the other needs; SQLite fails one without waiting.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(BUSY_PAUSE_SECONDS)


#: SQLite's errors, by the low byte of the code.
_SAID: Final = {
    sqlite3.SQLITE_BUSY: "the database is locked by another program",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_FULL: "the disk under the database is full",
    sqlite3.SQLITE_IOERR: "the disk under the database fails",
    sqlite3.SQLITE_NOTADB: "the database is damaged",
    sqlite3.SQLITE_PERM: "the database cannot be written",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
}


def _failure(cause: BaseException) -> ServiceError:
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    message = _SAID.get(code, "the database does not answer")
    return Unavailable(message, FULL_SECONDS) if code == sqlite3.SQLITE_FULL else DirectoryDown(message)
