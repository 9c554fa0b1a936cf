"""The command `earshot config`: prints the settings in force, or a table of all settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.output import AsJson, Value, show, show_all
from infra.errors import variable

if TYPE_CHECKING:
    from infra.settings import Settings


def config(
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table of all settings.")] = False,
) -> None:
    """Print the settings in force, with keys and passwords redacted."""
    from infra.settings import load

    if as_markdown:
        typer.echo(markdown())
        return
    settings = load()
    values = redacted(settings)
    if as_json:
        show(values, as_json)
        return
    variables = {name.upper() for name, value in os.environ.items() if value}
    set_here = {
        variable(field): "environment" if variable(field) in variables else "file"
        for field in settings.model_fields_set
    }
    rows = [{"setting": name, "value": value, "from": set_here.get(name, "default")} for name, value in values.items()]
    show_all(rows, as_json)


def redacted(settings: Settings) -> dict[str, Value]:
    """Return the settings in force by environment variable, redacted."""
    in_force = dict(settings) | {
        "database_url": settings.database,
        "partitions": settings.partition_count,
        "lanes": settings.lane_count,
    }
    return {variable(field): _plain(value) for field, value in in_force.items()}


def markdown() -> str:
    """Return the settings table of docs/settings.md."""
    from infra.settings import Settings

    lines = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for field, about in Settings.model_fields.items():
        default = "" if about.default_factory or about.default is None else f"`{_as_set(about.default)}`"
        lines.append(f"| `{variable(field)}` | {default} | {about.description} |")
    return "\n".join(lines)


def _as_set(value: object) -> str:
    """Return a value as a variable of the environment would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: object) -> Value:
    from pydantic import SecretStr

    from infra.urls import redact_url
    from topics.apikeys import redact

    match value:
        case None | bool() | int() | float():
            return value
        case SecretStr():
            return redact(value.get_secret_value())
        case _:
            return redact_url(str(value))
