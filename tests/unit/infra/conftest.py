"""Control-plane databases (SQLite, PostgreSQL if available) and command lines for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TypeVar

import numpy as np
import pytest
import typer
from sqlalchemy import text
from typer.testing import CliRunner, Result

from infra import urls
from infra.cli import add_commands
from infra.db.database import Database
from infra.teaching import background
from infra.teaching.background import Background, ContextKind
from streams import cores
from streams.models.manifest import Manifest
from tests import postgres

T = TypeVar("T")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes do not start by themselves, whatever the machine is."""
    monkeypatch.setattr(cores, "usable", lambda: 2)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """URL of a PostgreSQL database, which may contain data of other tests."""
    with postgres.postgres_database() as url:
        yield urls.database_url(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        (tmp_path / "control").mkdir()
        return f"sqlite+aiosqlite:///{tmp_path / 'control' / 'earshot.db'}"
    url: str = request.getfixturevalue("postgresql_url")
    empty(url)
    return url


@pytest.fixture
def part_of_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning against a sixteenth of the background is faster."""
    read = background.read

    def part(manifest: Manifest, context: ContextKind = "") -> Background:
        whole = read(manifest, context)
        assert whole is not None
        kept = whole.recording % 16 == 0
        numbers = np.unique(whole.recording[kept], return_inverse=True)
        labels = tuple(whole.labels[number] for number in numbers[0])
        return Background(whole.embeddings[kept], numbers[1], whole.source[kept], labels)

    monkeypatch.setattr(background, "read", part)


AWAY = "postgresql+asyncpg://earshot:secret@127.0.0.1:9/earshot"
#: For tests of SQLite's own behaviour.
SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def opened(loop: asyncio.Runner, database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    loop.run(database.close())


@cache
def migrated() -> bytes:
    """Return a SQLite database without rows; copying it takes a quarter of the time of making one."""
    with TemporaryDirectory() as directory:
        file = Path(directory, "earshot.db")
        run(f"sqlite+aiosqlite:///{file}", Database.migrate)
        return file.read_bytes()


@pytest.fixture
def database(loop: asyncio.Runner, opened: Database) -> Database:
    if opened.file is not None:
        opened.file.write_bytes(migrated())
    loop.run(opened.migrate())
    return opened


@pytest.fixture
def others(loop: asyncio.Runner, database_url: str) -> Iterator[list[Database]]:
    """The database as other nodes have it."""
    made = [Database(database_url) for _ in range(3)]
    yield made
    for one in made:
        loop.run(one.close())


def stored(directory: Path) -> bytes:
    """Return all bytes of all files of a SQLite database."""
    return b"".join(path.read_bytes() for path in sorted((directory / "control").iterdir()))


def empty(url: str) -> None:
    """Drop everything in a PostgreSQL database."""

    async def story(database: Database) -> None:
        async with database.writing() as connection:
            await connection.execute(text("DROP SCHEMA public CASCADE"))
            await connection.execute(text("CREATE SCHEMA public"))

    run(url, story)


def run(url: str, story: Callable[[Database], Awaitable[T]]) -> T:
    """Return the result of `story` on the database, then close it."""

    async def told() -> T:
        database = Database(url)
        try:
            return await story(database)
        finally:
            await database.close()

    return asyncio.run(told())


def app_of(*modules: ModuleType) -> typer.Typer:
    """Return a command line with the commands of these modules only."""
    made = typer.Typer()
    for module in modules:
        add_commands(made, module.__name__.rpartition(".")[2])
    return made


def invoked(app: typer.Typer, *words: str | Path, code: int = 0) -> Result:
    """Return the result of a command that ends with the status `code`."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result
