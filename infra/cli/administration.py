"""Where the commands of an operator do their work: on this machine's database, or on a service elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from topics.errors import BadRequest, Unauthorized

if TYPE_CHECKING:
    from topics.ports.administration import Administration

T = TypeVar("T")

KEY = "EARSHOT_ADMIN_KEY"

AdminUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EARSHOT_ADMIN_URL",
        help=f"A service elsewhere, which must have the same {KEY} as this command; by default the database here.",
    ),
]


def administer(url: str | None, story: Callable[[Administration], Awaitable[T]]) -> T:
    """Return what `story` returns, which is called with the administration of the service at `url`, or of this machine.

    Raises:
        EarshotError: the service or the database cannot be used, or an argument of the command is not UTF-8.
    """

    async def run() -> T:
        async with administration(url) as accounts:
            return await story(accounts)

    try:
        return asyncio.run(run())
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # of what is printed, where that takes fewer letters
            raise
        raise BadRequest("an id or a name is not UTF-8") from None


@asynccontextmanager
async def administration(url: str | None) -> AsyncIterator[Administration]:
    """Yield the service at `url`, without one the database of this machine.

    Raises:
        Unauthorized: the environment has no key for the service.
        EarshotError: whatever went wrong there.
    """
    if url:
        from infra.cli.admin_client import AdminClient

        if not os.environ.get(KEY):
            raise Unauthorized(f"no admin key: set {KEY} to that of the service")
        async with AdminClient(url, os.environ[KEY]) as client:
            yield client
        return

    from infra.db.database import Database
    from infra.service.administration import SqlAdministration
    from infra.settings import load

    database = Database(load().database)
    try:
        await database.migrate()
        yield SqlAdministration(database)
    finally:
        await database.close()
