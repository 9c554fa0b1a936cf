"""`earshot destinations`: where the alarms of a project are sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from infra.cli import remote
from infra.cli.output import AsJson, Row, Yes, confirm, show, show_all, show_key
from infra.secret_files import read_secret
from topics.errors import BadRequest, EarshotError

if TYPE_CHECKING:
    from earshot_client import Client, Destination

Name = Annotated[str, typer.Argument(help="Name of the destination.")]

destinations: Final = typer.Typer(
    help="Destinations of alarms: webhooks, MQTT brokers and phones by ntfy.", no_args_is_help=True
)


@destinations.command("list")
def list_destinations(url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False) -> None:
    """List the destinations, without their secrets."""
    with remote.connected(url, key_file) as client:
        show_all([_row(one) for one in client.destinations()], as_json)


@destinations.command("add")
def add(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="URL", help="As https://ntfy.sh/TOPIC or mqtts://broker.example.org.")],
    kind: Annotated[str | None, typer.Option(help="webhook, mqtt or ntfy; by default as the URL looks.")] = None,
    user: Annotated[str | None, typer.Option(help="User of the broker, or for basic authentication.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="File with the password or token.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="What else the kind takes.")
    ] = None,
    url: remote.Url = None,
    key_file: remote.KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a destination; print the secret of a webhook, which nobody can read later."""
    from earshot_client import Destination

    if wrong := [one for one in options or () if "=" not in one]:
        raise BadRequest(f"--option {wrong[0]}: not NAME=VALUE")
    given = dict(one.split("=", 1) for one in options or ())
    new = Destination(name=name, kind=kind or _kind(to), url=to, user=user, options=given)
    password = None if password_file is None else read_secret("password", password_file)
    with remote.connected(url, key_file) as client:
        added = client.add_destination(new, password)
    row = _row(added.destination)
    if added.secret is None:
        show(row, as_json)
    else:
        show_key({**row, "secret": added.secret}, as_json, f"earshot destinations rotate {name} --yes")


@destinations.command("remove")
def remove(
    name: Name, yes: Yes = False, url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False
) -> None:
    """Delete a destination; no rule may send to it."""
    confirm(yes, f"Delete the destination {name}?")
    with remote.connected(url, key_file) as client:
        client.delete_destination(_named(client, name).id)
    show({"deleted": name}, as_json)


@destinations.command("rotate")
def rotate(
    name: Name, yes: Yes = False, url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False
) -> None:
    """Give a webhook a new secret, and print it; the old one signs too for 24 hours."""
    confirm(yes, f"Make a new secret of {name}?")
    with remote.connected(url, key_file) as client:
        secret = client.rotate_destination(_named(client, name).id)
    show_key({"name": name, "secret": secret}, as_json, f"earshot destinations rotate {name} --yes")


@destinations.command("test")
def try_out(name: Name, url: remote.Url = None, key_file: remote.KeyFile = None, as_json: AsJson = False) -> None:
    """Send a test message; exit status 1 if it was not delivered."""
    with remote.connected(url, key_file) as client:
        sent = client.test_destination(_named(client, name).id)
    show({"state": sent.state, "status": sent.status, "error": sent.error}, as_json)
    if sent.state != "delivered":
        raise typer.Exit(1)


def _named(client: Client, name: str) -> Destination:
    for one in client.destinations():
        if name in (one.name, one.id):
            return one
    raise EarshotError(f"there is no destination {name!r}; `earshot destinations list` has them")


def _kind(url: str) -> str:
    """Return the kind of destination that a URL looks like."""
    scheme, _, rest = url.partition("://")
    if scheme in ("mqtt", "mqtts"):
        return "mqtt"
    return "ntfy" if rest.startswith("ntfy.") else "webhook"


def _row(one: Destination) -> Row:
    return {
        "name": one.name,
        "kind": one.kind,
        "url": one.url,
        "user": one.user,
        "password": "yes" if one.has_password else None,
        "options": ", ".join(f"{name}={value}" for name, value in one.options.items()),
        "on": one.enabled,
        "fault": one.fault,
        "id": one.id,
    }
