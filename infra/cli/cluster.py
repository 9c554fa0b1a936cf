"""`earshot cluster` and `earshot drain`: report the state of a running service, and stop one of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.administration import ServiceUrl, on_service
from infra.cli.output import AsJson

if TYPE_CHECKING:
    from rich.table import Table

    from app.admin.admin_bodies import NodesReport
    from topics.ports.nodes import PartitionFacts


def cluster(url: ServiceUrl = None, as_json: AsJson = False) -> None:
    """Print the state of each node and partition: owners, stand-bys, lag, faults; exit status 1 if something is bad.

    It asks a running service with the operator's key, EARSHOT_ADMIN_KEY.
    """
    report = on_service(url, lambda client: client.nodes())
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print(report)
    if report.state == "bad":
        raise typer.Exit(1)


def drain(node: Annotated[str, typer.Argument(help="As `earshot cluster` names it.")], url: ServiceUrl = None) -> None:
    """Stop a node: it gives its partitions to the other nodes, forwards to them for some seconds, and ends.

    It asks a running service with the operator's key, EARSHOT_ADMIN_KEY. Where the node's process is supervised, it
    starts again afterwards.
    """
    on_service(url, lambda client: client.drain(node))
    typer.echo(f"{node} gives its partitions away and stops; its log says `service.stopped` at the end.")


def _print(report: NodesReport) -> None:
    from infra.cli.tables import plain, print_parts, table

    rows = table("node", "version", "state", "partitions", "stand-bys", "sessions", "jobs", "parked", "models")
    workers = table("worker", "node", "state", "busy", "sessions", "waiting", "deaths", "serves")
    for one in report.nodes:
        node = one.node
        if node is None:
            rows.add_row(one.url, "-", one.state, *["-"] * 6)
            continue
        parked = "-" if node.parked is None else str(node.parked.count)
        numbers = (len(node.partitions), len(node.standbys), node.sessions, node.jobs)
        name = f"{one.url} (lane {node.lane})" if isinstance(node.lane, int) else one.url
        rows.add_row(name, node.version, one.state, *map(str, numbers), parked, ", ".join(node.models))
        for at in node.workers:
            counts = map(str, (at.sessions, at.waiting, at.deaths))
            serves = "all" if at.project is None else f"project {at.project}"
            workers.add_row(str(at.process or "-"), one.url, at.state, f"{at.busy:.0%}", *counts, serves)
    found = [f"{finding.state}: {one.url}: {finding.text}" for one in report.nodes for finding in one.findings]
    if report.missing:
        found.insert(0, f"bad: no node serves partition {', '.join(map(str, report.missing))}")
    print_parts(rows, _partitions(report), *([workers] if workers.rows else []), *map(plain, found))


def _partitions(report: NodesReport) -> Table:
    """Return a table of the partitions: the owner, its lag, and what it waits for; the stand-bys, and theirs."""
    from infra.cli.tables import plain, table

    owners: dict[int, list[tuple[str, PartitionFacts]]] = {}
    standbys: dict[int, list[str]] = {}
    for one in report.nodes:
        if one.node is None:
            continue
        for partition in one.node.partitions:
            owners.setdefault(partition.number, []).append((one.url, partition))
        for copy in one.node.standbys:
            lag = copy.reason or (f"{copy.behind} behind, {copy.behind_seconds:g} s" if copy.behind else "")
            standbys.setdefault(copy.number, []).append(f"{one.url} ({lag})" if lag else one.url)
    rows = table("partition", "owner", "state", "behind", "seconds", "stand-by", "waits for")
    for number in range(report.partitions):
        copies = plain(", ".join(standbys.get(number, ["-"])))
        for owner, partition in owners.get(number, []):
            behind = sum(place.behind for place in partition.topics)
            seconds = max((place.behind_seconds for place in partition.topics), default=0.0)
            waits_for = plain(partition.reason or "")
            rows.add_row(str(number), owner, partition.state, str(behind), f"{seconds:g}", copies, waits_for)
        if number not in owners:
            rows.add_row(str(number), *["-"] * 4, copies, "an owner that answers")
    return rows
