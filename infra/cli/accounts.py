"""Commands for organizations, projects and keys: `earshot org`, `earshot project`, `earshot key`."""

from __future__ import annotations

from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.administration import AdminUrl, administer
from infra.cli.output import AsJson, Row, Yes, confirm, show, show_all, show_key

if TYPE_CHECKING:
    from topics.ports.administration import Organization, Project

Name = Annotated[str, typer.Argument(help="1 to 40 characters.")]
OrganizationArgument = Annotated[str, typer.Argument(metavar="ORG", help="Id or name of an organization.")]
ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="Id or name of a project.")]
InOrganization = Annotated[str | None, typer.Option("--org", "--organization", help="Id or name of the organization.")]
FreeSeconds = Annotated[
    int | None,
    typer.Option("--free-seconds", min=0, help="Seconds of audio a month, counted per service; a trial has 1200."),
]
Unlimited = Annotated[bool, typer.Option("--unlimited", help="Set no limit.")]

org = typer.Typer(help="Organizations and their keys.", no_args_is_help=True)
project = projects = typer.Typer(help="Projects and their plans.", no_args_is_help=True)
key = typer.Typer(
    help="Keys of projects (of organizations: earshot org rotate-key); each is shown only once, when issued.",
    no_args_is_help=True,
)


@org.command("create")
def create_organization(
    name: Name,
    new: Annotated[
        bool, typer.Option("--new-database", help="Also make the database if there is none, as a service does.")
    ] = False,
    url: AdminUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make an organization and print its key."""
    organization, new_key = administer(url, lambda accounts: accounts.create_organization(name), new=new)
    show_key({**_row(organization), "key": new_key}, as_json, f"earshot org rotate-key {organization.id}")


@org.command("list")
def list_organizations(url: AdminUrl = None, as_json: AsJson = False) -> None:
    """List all organizations."""
    show_all([_row(one) for one in administer(url, lambda accounts: accounts.organizations())], as_json)


@org.command("rotate-key")
def rotate_organization_key(
    organization: OrganizationArgument, yes: Yes = False, url: AdminUrl = None, as_json: AsJson = False
) -> None:
    """Revoke an organization's key and print its new one; nodes refuse the old one within EARSHOT_KEY_CACHE_SECONDS."""
    confirm(yes, f"Make a new key of organization {organization}, and revoke the one that its programs use now?")
    new_key = administer(url, lambda accounts: accounts.rotate_organization_key(organization))
    show_key({"organization": organization, "key": new_key}, as_json, f"earshot org rotate-key {quote(organization)}")


@org.command("delete")
def delete_organization(
    organization: OrganizationArgument, yes: Yes = False, url: AdminUrl = None, as_json: AsJson = False
) -> None:
    """Delete an organization, its projects with all they have, and its speakers with their voices."""
    confirm(yes, f"Delete organization {organization}, its projects with all they have, and its speakers?")
    administer(url, lambda accounts: accounts.delete_organization(organization))
    show({"deleted": organization}, as_json)


@project.command("create")
def create_project(
    name: Name, organization: InOrganization = None, url: AdminUrl = None, as_json: AsJson = False
) -> None:
    """Make a project, in the only organization unless --org names one, and print its key."""
    created, new_key = administer(url, lambda accounts: accounts.create_project(name, organization))
    show_key({**_with_plan(_row(created), as_json), "key": new_key}, as_json, f"earshot key rotate {created.id}")


@project.command("list")
def list_projects(organization: InOrganization = None, url: AdminUrl = None, as_json: AsJson = False) -> None:
    """List all projects, or those of one organization."""
    rows = [_row(one) for one in administer(url, lambda accounts: accounts.projects(organization))]
    show_all([_with_plan(row, as_json) for row in rows], as_json)


@project.command("plan")
def plan_project(
    name: ProjectArgument,
    free_seconds: FreeSeconds = None,
    unlimited: Unlimited = False,
    url: AdminUrl = None,
    as_json: AsJson = False,
) -> None:
    """Limit the audio that a project may analyse in a month (UTC); new projects are unlimited.

    Nodes learn it within EARSHOT_KEY_CACHE_SECONDS.
    """
    if (free_seconds is None) is not unlimited:
        raise typer.BadParameter("give one of --free-seconds and --unlimited")
    administer(url, lambda accounts: accounts.plan(name, free_seconds))
    show(_with_plan({"project": name, "free_seconds": free_seconds}, as_json), as_json)


@project.command("delete")
def delete_project(name: ProjectArgument, yes: Yes = False, url: AdminUrl = None, as_json: AsJson = False) -> None:
    """Delete a project, its key, own sounds, sessions and jobs. Its usage stays in the ledger."""
    confirm(yes, f"Delete project {name}, its key, own sounds, sessions and jobs?")
    administer(url, lambda accounts: accounts.delete_project(name))
    show({"deleted": name}, as_json)


@key.command("rotate")
def rotate_project_key(name: ProjectArgument, yes: Yes = False, url: AdminUrl = None, as_json: AsJson = False) -> None:
    """Revoke a project's key and print its new one; nodes refuse the old one within EARSHOT_KEY_CACHE_SECONDS."""
    confirm(yes, f"Make a new key of project {name}, and revoke the one that its programs use now?")
    new_key = administer(url, lambda accounts: accounts.rotate_project_key(name))
    show_key({"project": name, "key": new_key}, as_json, f"earshot key rotate {quote(name)}")


def _row(one: Organization | Project) -> Row:
    from msgspec import structs

    created = datetime.fromtimestamp(one.created_at / 1000, UTC).isoformat(timespec="seconds")
    row = structs.asdict(one) | {"created_at": created}
    # A redacted key gets another field name, so that no program mistakes it for a key.
    return row | {"key_shown_as": row.pop("key")}


def _with_plan(row: Row, as_json: bool) -> Row:
    """Return a project's row with a word for people instead of null."""
    return row if as_json or row["free_seconds"] is not None else {**row, "free_seconds": "unlimited"}
