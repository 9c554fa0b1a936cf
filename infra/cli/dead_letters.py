"""`earshot dead-letters`: list, show and put back the records that a running service could not read."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli.administration import ServiceUrl, on_service
from infra.cli.output import AsJson, show, show_all

dead_letters = typer.Typer(
    help="Records that could not be read and were set aside for a week; asks a running service with EARSHOT_ADMIN_KEY.",
    no_args_is_help=True,
)

Record = Annotated[str, typer.Argument(metavar="RECORD", help="Its topic, partition and offset, as `list` prints it.")]


@dead_letters.command("list")
def list_letters(url: ServiceUrl = None, as_json: AsJson = False) -> None:
    """List the newest dead letters of each node, with the cause; exit status 1 if a node or its log does not answer."""
    report = on_service(url, lambda client: client.nodes())
    parked = {one.url: None if one.node is None else one.node.parked for one in report.nodes}
    found = sorted((letter for there in parked.values() if there for letter in there.newest), key=lambda one: one.at)
    show_all(
        [
            {
                "record": f"{one.topic}/{one.partition}/{one.offset}",
                "at": one.at.isoformat(timespec="seconds"),
                "cause": one.cause,
            }
            for one in found
        ],
        as_json,
    )
    if more := sum(there.count for there in parked.values() if there) - len(found):
        typer.echo(f"earshot: {more} older ones are not listed", err=True)
    if silent := [node for node, there in parked.items() if there is None]:
        typer.echo(f"earshot: dead letters of {', '.join(silent)} are not known; see `earshot cluster`", err=True)
        raise typer.Exit(1)


@dead_letters.command("show")
def show_letter(record: Record, url: ServiceUrl = None, as_json: AsJson = False) -> None:
    """Show a dead letter: when and why it was set aside; with --json also its value, in base64."""
    from base64 import b64encode

    letter = on_service(url, lambda client: client.dead_letter(record))
    value = {"value": b64encode(letter.value).decode()} if as_json else {}
    told = {"at": letter.at.isoformat(timespec="seconds"), "cause": letter.cause, "key": letter.key}
    show({"record": record, **told, "bytes": len(letter.value), **value}, as_json)


@dead_letters.command("put-back")
def put_back(record: Record, url: ServiceUrl = None, as_json: AsJson = False) -> None:
    """Append a dead letter to its topic again, for example once a version runs that can read it.

    If it still cannot be read, it is set aside again. Putting it back twice does nothing more than once.
    """
    offset = on_service(url, lambda client: client.put_back(record))
    show(
        {"record": record, "offset": offset, "note": "read again now; `list` shows it if it is set aside again"},
        as_json,
    )
