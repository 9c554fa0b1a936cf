"""`earshot nodes`: report the state of a running service's nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.administration import admin_client
from infra.cli.output import AsJson
from infra.urls import local_url

if TYPE_CHECKING:
    from app.admin.admin_bodies import NodesReport


Url = Annotated[
    str | None,
    typer.Option(
        envvar="EARSHOT_ADMIN_URL",
        help="Where the operator's interface is; by default on this machine, as the settings say.",
    ),
]


def nodes(url: Url = None, as_json: AsJson = False) -> None:
    """Print the state of each node: faults, partitions, workers; exit status 1 if something is bad.

    It asks a running service with the operator's key, EARSHOT_ADMIN_KEY.
    """
    report = asyncio.run(_ask(url or _here()))
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print(report)
    if report.state == "bad":
        raise typer.Exit(1)


def _here() -> str:
    from infra.settings import load
    from infra.urls import host_and_port

    settings = load()
    return local_url(
        *(host_and_port(settings.admin_listen) if settings.admin_listen else (settings.host, settings.port))
    )


async def _ask(url: str) -> NodesReport:
    async with admin_client(url) as client:
        return await client.nodes()


def _print(report: NodesReport) -> None:
    from infra.cli.tables import plain, print_parts, table

    rows = table("node", "state", "partitions", "behind", "sessions", "jobs", "parked", "models")
    workers = table("worker", "node", "state", "busy", "sessions", "waiting", "deaths", "serves")
    for one in report.nodes:
        node = one.node
        if node is None:
            rows.add_row(one.url, one.state, "-", "-", "-", "-", "-", "-")
            continue
        behind = sum(place.behind for partition in node.partitions for place in partition.topics)
        parked = "-" if node.parked is None else str(node.parked.count)
        numbers = (len(node.partitions), behind, node.sessions, node.jobs)
        name = f"{one.url} (lane {node.lane})" if isinstance(node.lane, int) else one.url
        rows.add_row(name, one.state, *map(str, numbers), parked, ", ".join(node.models))
        for at in node.workers:
            counts = map(str, (at.sessions, at.waiting, at.deaths))
            serves = "all" if at.project is None else f"project {at.project}"
            workers.add_row(str(at.process or "-"), one.url, at.state, f"{at.busy:.0%}", *counts, serves)
    found = [f"{finding.state}: {one.url}: {finding.text}" for one in report.nodes for finding in one.findings]
    if report.missing:
        found.insert(0, f"bad: no node serves partition {', '.join(map(str, report.missing))}")
    print_parts(rows, *([workers] if workers.rows else []), *map(plain, found))
