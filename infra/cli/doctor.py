"""`earshot doctor`: check the settings, and what they name, on this machine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import typer

from infra.cli.administration import admin_client, service_url
from infra.cli.output import AsJson, show_all
from topics.errors import EarshotError

if TYPE_CHECKING:
    from infra.service.doctor import Check
    from infra.settings import Settings


def doctor(as_json: AsJson = False) -> None:
    """Check settings, disks, clocks, database, log, topics, model, engines and address; exit status 1 if one is bad.

    Run it with the settings and as the user of the service, which may run. It changes nothing. With EARSHOT_ADMIN_KEY
    it also asks a running service what it finds. What is `slow` works, but needs a look.
    """
    from infra.settings import load

    found = asyncio.run(_examine(load()))
    show_all([{"state": one.state, "about": one.about, "finding": one.text} for one in found], as_json)
    if any(one.state == "bad" for one in found):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> list[Check]:
    from infra.service.doctor import examine

    told = await _running(settings)
    async with aclosing(examine(settings, told is not None)) as found:
        return [one async for one in found] + (told or [])


async def _running(settings: Settings) -> list[Check] | None:
    """Return what the service on this machine finds, None if it does not run or cannot be asked."""
    from infra.service.doctor import Check, holder

    try:
        if settings.admin_key is None or holder(settings) is None:
            return None
        async with admin_client(service_url(None)) as client:
            report = await client.nodes()
    except EarshotError as error:
        return [Check("bad", "service", str(error))]
    own = report.nodes[0]
    found = [Check(one.state, "service", one.text) for one in own.findings]
    return found or [Check("good", "service", f"{own.url} finds nothing wrong")]
