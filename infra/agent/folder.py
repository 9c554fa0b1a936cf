"""Sends the files that appear in a folder, each once, when nobody writes to them any more."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import structlog

from infra.agent.feed import Pauses
from infra.agent.sources import Source
from infra.errors import Unfit

if TYPE_CHECKING:
    from earshot_client import AsyncClient

log: Final = structlog.stdlib.get_logger("infra.agent")

#: Seconds between two looks, and for which a file must not have changed.
LOOK_SECONDS: Final = 2.0
REST_SECONDS: Final = 5.0
CHUNK: Final = 1024 * 1024
STATE: Final = "folder.sqlite"
#: What was sent, and the session of the file that is on its way.
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sent (name TEXT, size INTEGER, changed_ns INTEGER, PRIMARY KEY (name, size, changed_ns));
CREATE TABLE IF NOT EXISTS sending (session TEXT);
"""
#: The service finds out the format.
CONTENT_TYPE: Final = "application/octet-stream"
#: Statuses of a file that the service will never take; a proxy before it may change its mind.
FILE_FAULTS: Final = frozenset({400, 403, 413, 415, 422})


class _File(NamedTuple):
    """A file as it was seen: another size or time makes it another file."""

    name: str
    size: int
    changed_ns: int


class Folder:
    """A folder as a source. Loop only."""

    def __init__(self, source: Source, client: AsyncClient, directory: Path) -> None:
        """Read from `directory` what an earlier agent has sent.

        Raises:
            Unfit: that cannot be read.
        """
        self._source, self._client = source, client
        self._folder = Path(source.folder or "")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / STATE
        self._state = sqlite3.connect(path)
        try:
            self._state.executescript(SCHEMA)
            self._sent = {_File(*row) for row in self._state.execute("SELECT name, size, changed_ns FROM sent")}
        except sqlite3.Error as error:
            self._state.close()
            raise Unfit(f"{path}: {error}; without this file, every file of the folder is sent again") from None
        self._seen: set[_File] = set()
        #: Files that could not be read, which the log says once.
        self._unreadable: set[_File] = set()
        self._said = ""

    async def run(self) -> None:
        """Send until cancelled."""
        with closing(self._state):
            await self._run()

    async def _run(self) -> None:
        from earshot_client import EarshotClientError

        pauses = Pauses()
        while True:
            pause = LOOK_SECONDS
            try:
                for (session,) in self._state.execute("SELECT session FROM sending").fetchall():
                    # Only a part of the file may have come.
                    await self._client.delete_session(session)
                    self._write("DELETE FROM sending", ())
                await self._look()
                self._said = ""
                pauses.reset()
            except (OSError, sqlite3.Error, EarshotClientError) as error:
                reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
                if reason != self._said:
                    log.error("folder not sent", source=self._source.name, reason=reason)
                self._said, pause = reason, pauses.next()
            except Exception:
                log.exception("sending failed", source=self._source.name)
                pause = pauses.next()
            await asyncio.sleep(pause)

    async def _look(self) -> None:
        from earshot_client import RequestRefused

        found = await asyncio.to_thread(lambda: dict(self._files()))
        now, files = time.time(), set(found)
        rested = [one for one in files & self._seen - self._sent if now - one.changed_ns / 1e9 > REST_SECONDS]
        self._seen = files
        if files:  # Without one, its disk may be away.
            self._write("DELETE FROM sent WHERE (name, size, changed_ns) = (?, ?, ?)", *(self._sent - files))
            self._sent &= files
            self._unreadable &= files
        for file in sorted(rested, key=lambda one: one.changed_ns):
            try:
                opened = await asyncio.to_thread(_open, found[file])
            except OSError as error:  # The others go on.
                if file not in self._unreadable:
                    log.error("file not read", source=self._source.name, file=file.name, reason=error.strerror)
                self._unreadable.add(file)
                continue
            try:
                with opened:
                    await self._send(file, opened)
                log.info("file sent", source=self._source.name, file=file.name, bytes=file.size)
            except RequestRefused as error:
                if error.foreign or error.status not in FILE_FAULTS:
                    raise
                log.error("file refused", source=self._source.name, file=file.name, reason=str(error))
            self._sent.add(file)
            with self._state:
                self._state.execute("INSERT OR IGNORE INTO sent VALUES (?, ?, ?)", file)
                self._state.execute("DELETE FROM sending")

    def _files(self) -> Iterator[tuple[_File, Path]]:
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and not path.name.startswith(".") and status.st_size:
                    name = os.fsencode(path.name).decode(errors="backslashreplace")
                    yield _File(name, status.st_size, status.st_mtime_ns), path

    async def _send(self, file: _File, opened: BinaryIO) -> None:
        from earshot_client import Sensitivity, SessionOptions

        source = self._source
        options = SessionOptions(
            "file",
            CONTENT_TYPE,
            Sensitivity(source.sensitivity or 0),
            file.size,
            file_name=source.name,
            metadata={**source.labels, "file": file.name},
            model=source.model,
        )
        session = await self._client.create_session(options)
        self._write("INSERT INTO sending VALUES (?)", (session.id,))
        number, left = session.chunk_sequence, file.size
        while chunk := await asyncio.to_thread(opened.read, min(left, CHUNK)):
            number = await self._client.put_chunk(session.id, number, chunk)
            left -= len(chunk)
        if left:  # It has become shorter.
            await self._client.seal_session(session.id)

    def _write(self, statement: str, *rows: Sequence[str | int]) -> None:
        with self._state:
            self._state.executemany(statement, rows)


def _open(path: Path) -> BinaryIO:
    """Open a file that is no link: whoever may write into the folder must not choose what the agent reads elsewhere."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))
