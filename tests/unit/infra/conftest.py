"""Control-plane databases to test on: SQLite always, PostgreSQL where a server is named."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import MetaData

from infra import urls
from infra.db.database import Database

T = TypeVar("T")

POSTGRES = "EARSHOT_TEST_POSTGRES_URL"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EARSHOT_") and name != POSTGRES]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'control' / 'earshot.db'}"
    if POSTGRES not in os.environ:
        pytest.skip(f"{POSTGRES} names no PostgreSQL database")
    url = urls.database_url(os.environ[POSTGRES])
    asyncio.run(_empty(url))
    return url


async def _empty(url: str) -> None:
    database = Database(url)
    async with database.writing() as connection:
        tables = MetaData()
        await connection.run_sync(tables.reflect)
        await connection.run_sync(tables.drop_all)
    await database.close()


def run(url: str, story: Callable[[Database], Awaitable[T]]) -> T:
    """Return what `story` returns on the database, closed afterwards."""

    async def told() -> T:
        database = Database(url)
        try:
            return await story(database)
        finally:
            await database.close()

    return asyncio.run(told())
