"""`earshot link`: print a one-time sign-in link to the dashboard."""

import asyncio
from typing import Annotated

import typer

from infra.cli.administration import opened_database
from infra.cli.remote import Url, checked_url


def link(
    project: Annotated[
        str | None, typer.Argument(metavar="[PROJECT]", help="Id or name; by default the demo project.")
    ] = None,
    url: Url = None,
) -> None:
    """Print a link to the dashboard: it signs in a browser, once, within ten minutes.

    The browser gets the rights of the project and of its organization for twelve hours, or until it signs out. It
    cannot change their keys. The link is made in the database here.
    """
    from infra.service.links import OneTimeLinks, dashboard_link
    from infra.settings import load
    from infra.urls import local_url

    settings = load()
    address = checked_url(url or local_url(settings.host, settings.port))

    async def made() -> str:
        async with opened_database(settings) as database:
            return await OneTimeLinks(database).make(project)

    typer.echo(dashboard_link(address, asyncio.run(made())))
