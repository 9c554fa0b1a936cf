"""`earshot alarms`: the alarms of a project."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import remote
from infra.cli.output import AsJson, Most, Row, show, show_all
from topics.errors import BadRequest

if TYPE_CHECKING:
    from earshot_client import Alarm, AlarmFound, Client


def alarms(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print each alarm as it is made, until Ctrl+C.")
    ] = False,
    false: Annotated[
        str | None, typer.Option(metavar="ALARM", help="Say that nothing was there, of an alarm as it is listed.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Made at or after, as 2026-11-23T08:00.")] = None,
    most: Most = 50,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List the alarms, newest first."""
    with remote.connected(url, key_file) as client:
        names = {one.id: one.name for one in client.destinations()}
        if false is not None:
            session, _, sequence = false.partition("/")
            if not sequence.isdecimal():
                raise BadRequest(f"--false {false}: not an alarm as `earshot alarms` lists them, SESSION/NUMBER")
            show(_row(client.mark_alarm(session, int(sequence)), names), as_json)
        elif follow:
            _follow(client, names, as_json)
        else:
            show_all([_row(one, names) for one in islice(client.alarms(since=since), most)], as_json)


def found_row(one: AlarmFound) -> Row:
    """Return what a rule found as a row."""
    return {
        "at": one.begins_at.astimezone().isoformat(" ", "seconds"),
        "source": one.source or one.session_id,
        "what": ", ".join(f"{tag.name} {tag.probability:.2f}" for tag in one.tags) or one.what,
        "level": one.level,
        "reason": one.reason,
    }


def _follow(client: Client, names: dict[str, str], as_json: bool) -> None:
    """Print alarms as they are made; an event follows for each change of one, such as a delivery."""
    seen = set()
    for event in client.project_live():
        if event.kind == "alarm" and (alarm := event.alarm).id not in seen:
            seen.add(alarm.id)
            row = _row(alarm, names)
            shown = (
                json.dumps(row, ensure_ascii=False) if as_json else "  ".join(str(one) for one in row.values() if one)
            )
            typer.echo(shown)


def _row(one: Alarm, names: dict[str, str]) -> Row:
    return {
        "alarm": f"{one.session_id}/{one.sequence}",
        "rule": one.rule,
        **found_row(one),
        "false": "false" if one.false else None,
        "sent": ", ".join(
            f"{names.get(sent.destination_id, sent.destination_id)} {sent.state}" for sent in one.deliveries
        ),
    }
