"""Whose key is this: answered, refused without a look-up, or the store is down, and never late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.accounts import Accounts
from infra.db.bootstrap import bootstrap
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from tests.unit.infra.conftest import run
from topics import apikeys, ports
from topics.apikeys import Kind
from topics.errors import DirectoryDown
from topics.ports import Principal

CHOSEN = "project key chosen by an operator"


class Silent(Database):
    """A store that never answers, not even when it is told to stop."""

    def __init__(self) -> None:
        self.told_to_stop = asyncio.Event()
        self.released = asyncio.Event()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told_to_stop.set()
            await self.released.wait()
            raise OSError("the line is dead") from None
        async with super().reading() as connection:
            yield connection


def directory(database: Database, timeout: float = 2.0) -> ports.Directory:
    return SqlDirectory(database, timeout)


def test_a_live_key_is_known(database_url: str) -> None:
    async def story(database: Database) -> None:
        await database.migrate()
        await bootstrap(database, 0, CHOSEN)
        accounts = Accounts(database)
        known = directory(database)
        (project,) = await accounts.projects()
        assert await known.project(CHOSEN) == Principal(project.id, project.organization)
        rotated = await accounts.rotate_project_key("demo")
        assert await known.project(CHOSEN) is None
        assert await known.project(rotated) is not None

    run(database_url, story)


def test_a_mistyped_key_is_not_looked_up() -> None:
    key = apikeys.new(Kind.PROJECT)
    typed = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert asyncio.run(directory(Silent()).project(typed)) is None


def test_a_store_that_fails(database_url: str) -> None:
    async def story(database: Database) -> None:
        with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
            await directory(database).project(CHOSEN)

    run(database_url, story)


def test_a_server_that_is_not_there() -> None:
    async def story(database: Database) -> None:
        with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
            await directory(database).project(CHOSEN)

    run("postgresql+asyncpg://earshot:secret@127.0.0.1:9/earshot", story)


def test_a_store_that_is_silent_is_not_waited_for() -> None:
    async def story() -> None:
        store = Silent()
        with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
            await directory(store, timeout=0.01).project(CHOSEN)
        await store.told_to_stop.wait()
        store.released.set()

    asyncio.run(story())


def test_a_caller_that_goes_away_stops_the_look_up() -> None:
    async def story() -> None:
        store = Silent()
        caller = asyncio.create_task(directory(store).project(CHOSEN))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await store.told_to_stop.wait()
        store.released.set()

    asyncio.run(story())
