"""`earshot partitions`: list stopped partitions, and decide what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from infra.cli.output import AsJson, Yes, confirm, show, show_all

if TYPE_CHECKING:
    from infra.db.stops import SqlStops

T = TypeVar("T")

partitions = typer.Typer(
    help="Partitions that stopped; works on the database of the service, whether it runs or not.", no_args_is_help=True
)

Number = Annotated[int, typer.Argument(metavar="PARTITION", help="Its number.", min=0)]


@partitions.command("list")
def list_partitions(as_json: AsJson = False) -> None:
    """List the partitions that stopped, each with its cause and what was decided."""
    from msgspec import structs

    rows = [structs.asdict(stop) for stop in _on_stops(lambda stops: stops.all())]
    for row in rows:
        row["at"] = datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(timespec="seconds")
    show_all(rows, as_json)


@partitions.command("skip")
def skip(number: Number, yes: Yes = False, as_json: AsJson = False) -> None:
    """Set aside every record of a stopped partition that cannot be read, and serve it again.

    The records stay in the dead-letter topic for a week. If a newer version wrote them, start that version instead.
    """
    confirm(yes, f"Skip the records of partition {number} that cannot be read?")
    _decide(number, "skip", as_json)


@partitions.command("resume")
def resume(number: Number, as_json: AsJson = False) -> None:
    """Read the record at which a partition stopped again, without skipping anything."""
    _decide(number, "resume", as_json)


def _decide(number: int, decision: str, as_json: bool) -> None:
    from topics.ports.stops import Decision

    _on_stops(lambda stops: stops.decide(number, Decision(decision)))
    show({"partition": number, "decision": decision, "when": "within 5 s, or at the next start"}, as_json)


def _on_stops(work: Callable[[SqlStops], Awaitable[T]]) -> T:
    from infra.cli.administration import opened_database
    from infra.db.stops import SqlStops
    from infra.settings import load

    async def outcome() -> T:
        async with opened_database(load()) as database:
            return await work(SqlStops(database))

    return asyncio.run(outcome())
