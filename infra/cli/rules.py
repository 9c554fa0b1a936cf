"""`earshot rules`: the rules of alarms of a project."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from infra.cli import remote
from infra.cli.alarms import found_row
from infra.cli.output import AsJson, Row, Yes, confirm, show, show_all
from topics.alarms.rules import unused
from topics.errors import BadRequest

if TYPE_CHECKING:
    from earshot_client import AlarmRule, Client, Destination

Name = Annotated[str, typer.Argument(help="Name of the rule.")]
When = Annotated[
    str | None, typer.Option(help="heard (by default), absent (none of the tags is heard), loud or source.")
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="For heard and absent: a tag, own sound or class; may be repeated."),
]
Probability = Annotated[
    float | None, typer.Option(help="For heard and absent: from which a tag is heard; by default 0.5.")
]
Level = Annotated[float | None, typer.Option(help="For loud, and for heard if both must hold: level in dBFS.")]
Events = Annotated[
    list[str] | None,
    typer.Option("--event", help="For source: source.lost, source.back or source.silent; may be repeated."),
]
Duration = Annotated[float | None, typer.Option(help="For how many seconds it must hold; not for source.")]
Gap = Annotated[
    float | None, typer.Option(help="For heard and loud: seconds of pauses that do not end it; by default 2.")
]
Source = Annotated[str | None, typer.Option(help='Name of the stream; "" for all.')]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=VALUE", help='Metadata that the stream must have; may be repeated. "" for none.'
    ),
]
During = Annotated[str | None, typer.Option(metavar="HH:MM-HH:MM", help='Part of the day; "" for all of it.')]
Zone = Annotated[str | None, typer.Option(help="Time zone of --during, as Europe/Berlin; by default UTC.")]
FirstOfDay = Annotated[bool | None, typer.Option("--first-of-day/--all-day", help="Only the first alarm of a day.")]
Cooldown = Annotated[
    float | None, typer.Option(help="Seconds without another alarm of the same stream; by default 60.")
]
To = Annotated[list[str] | None, typer.Option("--to", help='Name of a destination; may be repeated. "" for none.')]
Enabled = Annotated[bool | None, typer.Option("--on/--off", help="Whether it makes alarms.")]

rules: Final = typer.Typer(help="Rules of alarms: what makes an alarm, and where it is sent.", no_args_is_help=True)


@rules.command("list")
def list_rules(url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False) -> None:
    """List the rules."""
    with remote.connected(url, key_file) as client:
        known = client.destinations()
        rows = [_row(rule, known) for rule in client.alarm_rules()]
    show_all(rows, as_json)


@rules.command("add")
def add(
    name: Name,
    when: When = None,
    tags: Tags = None,
    probability: Probability = None,
    level: Level = None,
    events: Events = None,
    duration: Duration = None,
    gap: Gap = None,
    source: Source = None,
    labels: Labels = None,
    during: During = None,
    zone: Zone = None,
    first_of_day: FirstOfDay = None,
    cooldown: Cooldown = None,
    to: To = None,
    enabled: Enabled = None,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a rule; it holds from the next window on."""
    from earshot_client import AlarmRule

    plain = _given(when, tags, probability, level, events, duration, gap, source, first_of_day, cooldown, enabled)
    with remote.connected(url, key_file) as client:
        known = client.destinations()
        rule = _with(AlarmRule(name=name), plain, labels, during, zone, to, known)
        show(_row(client.add_alarm_rule(rule), known), as_json)


@rules.command("change")
def change(
    name: Name,
    when: When = None,
    tags: Tags = None,
    probability: Probability = None,
    level: Level = None,
    events: Events = None,
    duration: Duration = None,
    gap: Gap = None,
    source: Source = None,
    labels: Labels = None,
    during: During = None,
    zone: Zone = None,
    first_of_day: FirstOfDay = None,
    cooldown: Cooldown = None,
    to: To = None,
    enabled: Enabled = None,
    new_name: Annotated[str | None, typer.Option("--name", help="A new name.")] = None,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Change a rule; what no option names stays, unless --when makes it another kind, which does not use it."""
    plain = _given(when, tags, probability, level, events, duration, gap, source, first_of_day, cooldown, enabled)
    if new_name is not None:
        plain["name"] = new_name
    if when is not None:
        plain = {**unused(when), **plain}
    with remote.connected(url, key_file) as client:
        known = client.destinations()
        rule = _with(_named(client, name), plain, labels, during, zone, to, known)
        show(_row(client.change_alarm_rule(rule), known), as_json)


@rules.command("remove")
def remove(
    name: Name, yes: Yes = False, url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False
) -> None:
    """Delete a rule; its alarms stay."""
    confirm(yes, f"Delete the rule {name}?")
    with remote.connected(url, key_file) as client:
        client.delete_alarm_rule(_named(client, name).id)
    show({"deleted": name}, as_json)


@rules.command("test")
def try_out(
    name: Name,
    day: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="By default yesterday.")] = None,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List the alarms that a rule would have made on a day."""
    now = datetime.now().astimezone()
    offset = now.utcoffset() or timedelta()
    with remote.connected(url, key_file) as client:
        rule = _named(client, name)
        trial = client.test_alarm_rule(
            rule, day or (now - timedelta(days=1)).date().isoformat(), round(offset.total_seconds() / 60)
        )
    show_all([found_row(one) for one in trial.alarms], as_json)
    left = f", {trial.left_out} of which were not searched to their end" if trial.left_out else ""
    typer.echo(f"earshot: alarms on {trial.day}: {trial.total}; streams: {trial.sessions}{left}", err=True)


def _given(*values: Any) -> dict[str, Any]:
    """Return the fields of a rule that options name; raise BadRequest if one is no finite number."""
    plain = ("when", "tags", "probability", "level", "events", "duration", "gap", "source")
    names = (*plain, "first_of_day", "cooldown", "enabled")
    found = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    for name, value in found.items():
        if isinstance(value, float) and not math.isfinite(value):  # JSON has no such numbers.
            raise BadRequest(f"--{name} {value}: not a number that a rule can have")
    return found | ({"source": found["source"] or None} if "source" in found else {})


def _with(
    rule: AlarmRule,
    fields: dict[str, Any],
    labels: list[str] | None,
    during: str | None,
    zone: str | None,
    to: list[str] | None,
    known: tuple[Destination, ...],
) -> AlarmRule:
    """Return a rule with other fields.

    Raises:
        BadRequest: there is no such destination, or an option is malformed.
    """
    import msgspec

    from earshot_client import TimeOfDay

    if labels is not None:
        if wrong := [one for one in labels if one and "=" not in one]:
            raise BadRequest(f"--label {wrong[0]}: not NAME=VALUE")
        fields["labels"] = dict(one.split("=", 1) for one in labels if one)
    known_zone = "UTC" if rule.during is None else rule.during.zone
    if during is not None:
        begins, _, ends = during.partition("-")
        fields["during"] = TimeOfDay(begins, ends, zone or known_zone) if during else None
    elif zone is not None:
        if rule.during is None:
            raise BadRequest(f"--zone {zone}: it belongs to --during, which is missing")
        fields["during"] = msgspec.structs.replace(rule.during, zone=zone)
    if to is not None:
        fields["destinations"] = tuple(_destination(name, known) for name in to if name)
    return msgspec.structs.replace(rule, **fields)


def _destination(name: str, known: tuple[Destination, ...]) -> str:
    for one in known:
        if name in (one.name, one.id):
            return one.id
    names = ", ".join(one.name for one in known) or "none: add one with `earshot destinations add`"
    raise BadRequest(f"--to {name}: there is no such destination; there are {names}")


def _named(client: Client, name: str) -> AlarmRule:
    for rule in client.alarm_rules():
        if name in (rule.name, rule.id):
            return rule
    raise BadRequest(f"there is no rule {name!r}; `earshot rules list` has them")


def _row(rule: AlarmRule, known: tuple[Destination, ...]) -> Row:
    names = {one.id: one.name for one in known}
    during = rule.during
    return {
        "name": rule.name,
        "when": rule.when,
        "tags": ", ".join(rule.tags),
        "probability": rule.probability,
        "level": rule.level,
        "duration": rule.duration,
        "gap": rule.gap,
        "first_of_day": rule.first_of_day,
        "events": ", ".join(rule.events),
        "source": rule.source,
        "labels": ", ".join(f"{name}={value}" for name, value in rule.labels.items()),
        "during": None if during is None else f"{during.begins}-{during.ends} {during.zone}",
        "cooldown": rule.cooldown,
        "to": ", ".join(names.get(id, id) for id in rule.destinations),
        "on": rule.enabled,
        "id": rule.id,
    }
