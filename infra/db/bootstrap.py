"""The first start: a demo organization and project, so that there is a key to begin with."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import select

from infra.db import keyring
from infra.db.accounts import add_organization, add_project
from infra.db.database import Database
from infra.db.schema import organizations

NAME: Final = "demo"


class Bootstrapped(msgspec.Struct, frozen=True):
    """What a start has to tell the person who started it."""

    #: The demo project's fresh key, the only time that it is shown; None when it was chosen, or made at another start.
    fresh_key: str | None = None
    #: The demo organization's fresh key; otherwise as `fresh_key`.
    fresh_org_key: str | None = None
    #: Settings whose key opens nothing, because this was not the first start or the key was revoked since.
    unused: tuple[str, ...] = ()


async def bootstrap(
    database: Database, at: int, project_key: str | None = None, org_key: str | None = None
) -> Bootstrapped:
    """Make the demo organization and project, when there is no organization yet; later starts change nothing.

    Args:
        database: brought up to date before.
        at: the time in milliseconds.
        project_key: the project's key, taken verbatim; a fresh one by default.
        org_key: the organization's key, likewise.
    """
    chosen = {"bootstrap_project_key": project_key, "bootstrap_org_key": org_key}
    async with database.writing() as connection:
        if await connection.scalar(select(organizations.c.id).limit(1)):
            unused = [name for name, key in chosen.items() if key and await keyring.owner_of(connection, key) is None]
            return Bootstrapped(unused=tuple(unused))
        organization = await add_organization(connection, NAME, at)
        org_issued = await keyring.issue(connection, organization, at, org_key)
        project = await add_project(connection, organization.organization, NAME, at)
        issued = await keyring.issue(connection, project, at, project_key)
    return Bootstrapped(None if project_key else issued, None if org_key else org_issued)
