"""What a machine does once before it serves: it takes the data directory, opens the database, and shows first keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from infra.db import intact
from infra.db.bootstrap import Bootstrap, FirstKeys, bootstrap, first_keys
from infra.db.database import Database
from infra.db.secret import log_name, note_log_name
from infra.errors import named, variable
from infra.service import data_directory, directories, lanes, moves
from infra.service.lanes import Placement, lanes_of
from infra.service.links import OneTimeLinks
from infra.service_manager import ServiceManager
from infra.settings import Settings
from infra.urls import Embedded
from streams.embedded.errors import LogLocked
from streams.embedded.lock import DirectoryLock
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from topics.errors import DirectoryDown, NotFound

log = structlog.get_logger("earshot")

#: Reports to the person who started the service: its URL, the demo project's state, new keys, and the token of a link
#: to the dashboard.
Announce = Callable[[Settings, str, Bootstrap, FirstKeys, str | None], None]
#: Seconds that lanes have to end after their supervisor.
PREDECESSORS_SECONDS: Final = 10.0


class Premises:
    """The data directory and the database of a machine."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database)
        self._manager = ServiceManager()
        self._kept: asyncio.Task[None] | None = None

    def occupy(self, stack: contextlib.AsyncExitStack) -> DirectoryLock:
        """Take the data directory until the stack closes.

        Raises:
            EarshotError: it cannot be used, or another process uses it.
        """
        settings = self.settings
        directories.prepare(settings)
        # First: another process may use the directory, and then its database must not be migrated.
        lock = _lock(settings)
        stack.callback(lock.release)
        for lane in lanes_of(settings):
            if lane.lane.generation:
                directories.prepare(lane)
            directories.narrow(lane)
            data_directory.tidy(lane)
        stack.push_async_callback(self.database.close)
        return lock

    async def open_database(self, stopping: asyncio.Event) -> Bootstrap | None:
        """Check and migrate the database; return None if `stopping` ended the check."""
        if self.database.file is not None and isinstance(self.settings.log, Embedded):
            there = lanes_of(self.settings)
            begun = any(data_directory.log(one).exists() for one in there)
            change = max(Marks(data_directory.tables(one) / MARKS).change for one in there)
            await asyncio.to_thread(intact.check, self.database.file, change, begun, stopping.is_set)
            if stopping.is_set():
                return None
        try:
            await self.database.migrate()
        except DirectoryDown as error:
            if self.settings.database_url is None:
                raise
            raise named("database_url", error) from error
        # If a removal was killed before its scrub, the file still holds the removed data.
        await self.database.scrub()
        keys = (self.settings.bootstrap_project_key, self.settings.bootstrap_org_key)
        project, organization = (None if key is None else key.get_secret_value() for key in keys)
        demo = await bootstrap(self.database, _now_ms(), project, organization)
        for field in demo.unused:
            log.warning("bootstrap.unused", setting=variable(field), reason="this is not the first start")
        return demo

    async def settle(self) -> Placement:
        """Return the placement of the partitions on as many lanes as the settings say (see `infra.service.moves`)."""
        placement, name = lanes.stored(self.settings), None
        if len(placement.partitions) == self.settings.lane_count:
            return await asyncio.to_thread(moves.settle, self.settings, None)
        if self.database.file is not None and (name := await log_name(self.database)) is None:
            lanes.store(self.settings, placement)
            # Before there is a log: two lanes would each choose a name.
            await note_log_name(self.database, name := os.urandom(16))
        return await asyncio.to_thread(moves.settle, self.settings, name)

    async def welcome(self, announce: Announce, url: str, demo: Bootstrap, private: bool) -> None:
        """Announce the service at `url`; with `private`, only one person reads it, so it may show keys and a link."""
        for lane in lanes_of(self.settings):
            with contextlib.suppress(OSError):
                (lane.own / data_directory.LEFT_OUT).unlink()
        async with self._first_keys(demo, private) as keys:
            link = await self._link() if private and self.settings.edge.dashboard else None
            announce(self.settings, url, demo, keys, link)
        self._kept = asyncio.create_task(self._manager.keep(), name="service manager")

    @contextlib.asynccontextmanager
    async def _first_keys(self, demo: Bootstrap, private: bool) -> AsyncIterator[FirstKeys]:
        """Yield the keys to show: none if all were shown before, or if others could read them."""
        if not demo.keyless or not private:
            yield FirstKeys()
            return
        async with first_keys(self.database, _now_ms(), demo) as keys:
            yield keys

    async def _link(self) -> str | None:
        """Return the token of a sign-in link; None if the demo project was deleted or has no key."""
        with contextlib.suppress(NotFound):
            return await OneTimeLinks(self.database).make()
        return None


def _lock(settings: Settings) -> DirectoryLock:
    """Lock the data directory; wait for the lanes of a supervisor that has died, which end after it."""
    until = time.monotonic() + PREDECESSORS_SECONDS
    while True:
        try:
            return data_directory.lock(settings)
        except LogLocked as error:
            if time.monotonic() > until or _is_alive(error.holder):
                raise
            time.sleep(0.02)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It is another user's.
    return True


def _now_ms() -> int:
    return int(time.time() * 1000)
