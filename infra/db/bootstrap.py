"""The first start: a demo organization and project, so that there is a key to begin with."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import keyring
from infra.db.accounts import add_organization, add_project
from infra.db.database import Database
from infra.db.keyring import Owner
from infra.db.schema import keys, organizations, projects

NAME: Final = "demo"
#: The demo project keeps the audio of its jobs for a day, so that people who try the service see and hear them. It
#: also keeps what sounds are learnt from.
KEEP_AUDIO_SECONDS: Final = 86_400


class Bootstrap(msgspec.Struct, frozen=True):
    """The demo organization as a start found or made it."""

    #: True when it or its project has no key that anybody was shown: `first_keys` makes it.
    keyless: bool = False
    #: Digests of keys that nobody has seen yet: a start died before it showed them, or a node is showing them now and
    #: will be done long before this one is ready.
    unseen: tuple[bytes, ...] = ()
    #: Settings whose key is not valid, because another key came first or the key was revoked since.
    unused: tuple[str, ...] = ()


class FirstKeys(msgspec.Struct, frozen=True):
    """Keys of the demo organization and its project; each is None if there was one before."""

    project: str | None = None
    organization: str | None = None


async def bootstrap(
    database: Database, at: int, project_key: str | None = None, org_key: str | None = None
) -> Bootstrap:
    """Make the demo organization and project when there is no organization yet, with the keys that were chosen.

    A key that was not chosen is made by `first_keys`, once somebody can be shown it.

    Args:
        database: brought up to date before.
        at: the time in milliseconds.
        project_key: the project's key, taken verbatim.
        org_key: the organization's key, likewise.
    """
    async with database.writing() as connection:
        if await connection.scalar(select(organizations.c.id).limit(1)) is None:
            demo = await add_organization(connection, NAME, at)
            await add_project(connection, demo.organization, NAME, at, KEEP_AUDIO_SECONDS, keep_looks=True)
        unseen = tuple(await connection.scalars(select(keys.c.digest).where(keys.c.shown == keyring.UNSEEN)))
        keyless = await _keyless(connection, unseen)
        for owner in tuple(keyless):
            if chosen := project_key if owner.project else org_key:
                await keyring.issue(connection, owner, at, chosen)
                keyless.remove(owner)
        settings = {"bootstrap_project_key": project_key, "bootstrap_org_key": org_key}
        unused = [name for name, key in settings.items() if key and await keyring.owner_of(connection, key) is None]
    return Bootstrap(bool(keyless), unseen, tuple(unused))


@asynccontextmanager
async def first_keys(database: Database, at: int, demo: Bootstrap) -> AsyncIterator[FirstKeys]:
    """Make the keys that nobody was shown yet, for the body to show; `at` is the time in milliseconds.

    They work when the body gets them, and are noted as seen when it has ended. Where it fails, or the process dies
    before, the next start replaces them: so no key is lost that nobody saw.
    """
    async with database.writing() as connection:
        owners = await _keyless(connection, demo.unseen)
        fresh = {bool(owner.project): await keyring.issue(connection, owner, at, unseen=True) for owner in owners}
    yield FirstKeys(fresh.get(True), fresh.get(False))
    async with database.writing() as connection:
        for key in fresh.values():
            await keyring.note_seen(connection, key)


async def _keyless(connection: AsyncConnection, unseen: Sequence[bytes]) -> list[Owner]:
    """Return who of the demo organization and its project never had a key, except those that nobody saw.

    A revoked key counts, and so does one that another node is about to show.
    """
    seen = (keys.c.shown != keyring.UNSEEN) | keys.c.digest.not_in(unseen)
    never = ~exists().where(keys.c.organization_id == organizations.c.id, keys.c.project_id.is_(None), seen)
    demo = select(organizations.c.id).where(organizations.c.name == NAME)
    owners = [Owner(str(id)) for id in await connection.scalars(demo.where(never))]
    never = ~exists().where(keys.c.project_id == projects.c.id, seen)
    query = select(projects.c.organization_id, projects.c.id).where(projects.c.organization_id.in_(demo))
    return owners + [Owner(*row) for row in await connection.execute(query.where(projects.c.name == NAME, never))]
