"""Selects what an operator's commands work on: this machine's database, or a remote service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from infra.secret_files import secret
from topics.errors import BadRequest, ServiceError, Unauthorized

if TYPE_CHECKING:
    from infra.cli.admin_client import AdminClient
    from infra.db.database import Database
    from infra.settings import Settings
    from topics.ports.administration import Administration

T = TypeVar("T")

KEY = "EARSHOT_ADMIN_KEY"

AdminUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EARSHOT_ADMIN_URL",
        help=f"A remote service, which must have the same {KEY} as this command; by default the database here.",
    ),
]


ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EARSHOT_ADMIN_URL",
        help="Where the operator's interface is; by default on this machine, as the settings say.",
    ),
]


def service_url(url: str | None) -> str:
    """Return `url`, or where the operator's interface of this machine is by the settings."""
    if url:
        return url
    from infra.settings import load
    from infra.urls import host_and_port, local_url

    settings = load()
    listen = host_and_port(settings.admin_listen) if settings.admin_listen else (settings.host, settings.port)
    return local_url(*listen)


def administer(url: str | None, work: Callable[[Administration], Awaitable[T]], *, new: bool = False) -> T:
    """Run `work` on the service at `url`, or on this machine's database if it is None; return its result.

    With `new`, a missing database is made.

    Raises:
        EarshotError: there is no database or no key for the service, either refuses, or an argument of the command is
            not UTF-8.
    """

    async def outcome() -> T:
        if url:
            async with admin_client(url) as client:
                return await work(client)
        from infra.service.administration import SqlAdministration
        from infra.settings import load

        async with opened_database(load(), new=new) as database:
            return await work(SqlAdministration(database))

    return _run(outcome())


def on_service(url: str | None, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Run `work` on the running service at `url`, or on that of this machine if it is None; return its result.

    Raises:
        EarshotError: as from `administer`, or no service answers.
    """

    async def outcome() -> T:
        async with admin_client(service_url(url)) as client:
            return await work(client)

    return _run(outcome())


def _run(outcome: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(outcome)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # an error of printing to a terminal with fewer letters
            raise
        raise BadRequest("an id or a name is not UTF-8") from None


def admin_client(url: str) -> AdminClient:
    """Return a client of the service at `url`, with the key from the environment.

    Raises:
        Unauthorized: there is no key, or it cannot be one.
    """
    from infra.cli.admin_client import AdminClient

    key = secret("admin_key", os.environ)
    if key is None:
        raise Unauthorized(f"no admin key: set {KEY} to that of the service, or {KEY}_FILE to a file with it")
    return AdminClient(url, key)


@asynccontextmanager
async def opened_database(settings: Settings, *, new: bool = False) -> AsyncIterator[Database]:
    """Yield this machine's database, migrated.

    It must exist unless `new` is set. Otherwise a command in the wrong directory would make one, whose keys no service
    accepts.

    Raises:
        ServiceError: there is no database, or an older service uses it.
    """
    from infra.db.database import Database
    from infra.db.schema import REVISION
    from infra.service.data_directory import stopped
    from infra.service.directories import UMASK

    before = os.umask(UMASK)
    if new:
        settings.data.mkdir(parents=True, exist_ok=True)
    database = Database(settings.database)
    try:
        revision = await database.revision()
        if not new and revision is None:
            raise ServiceError(
                f"there is no database at {database.place}: set EARSHOT_DATA or EARSHOT_DATABASE_URL as for the "
                "service, or give --url; `earshot org create NAME --new-database` makes one"
            )
        if not settings.model_fields_set & {"data", "database_url"}:
            typer.echo(f"earshot: the database is {database.place}", err=True)
        # A database elsewhere may have no data directory on this machine.
        outdated = revision is not None and revision < REVISION and settings.data.exists()
        with stopped(settings) if outdated else nullcontext():
            await database.migrate()
        yield database
    finally:
        await database.close()
        os.umask(before)
