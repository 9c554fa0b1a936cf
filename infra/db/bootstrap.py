"""Creates a demo organization and project at the first start."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec
from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import keyring
from infra.db.accounts import add_organization, add_project
from infra.db.database import Database
from infra.db.keyring import Owner
from infra.db.schema import keys, organizations, projects
from infra.errors import WrongSetting
from topics import apikeys
from topics.choices import Choices

NAME: Final = "demo"
#: The demo project keeps the audio of its jobs for a day, so that people who try the service see and hear them. It also
#: keeps the embeddings that sounds are learnt from.
CHOICES: Final = Choices(keep_audio_seconds=86_400, keep_embeddings=True)


class Bootstrap(msgspec.Struct, frozen=True):
    """The state of the demo organization at a start."""

    #: Which of the organization and its project have no key that anybody has seen; `first_keys` makes them.
    keyless: tuple[Literal["organization", "project"], ...] = ()
    #: Digests of keys that nobody has seen yet. Either a start died before it showed them, or another node is showing
    #: them now and will finish long before this one is ready.
    unseen: tuple[bytes, ...] = ()
    #: Settings whose key is not valid, because another key came first or the key was revoked.
    unused: tuple[str, ...] = ()


class FirstKeys(msgspec.Struct, frozen=True):
    """New keys of the demo organization and its project; None for an owner that already had one."""

    project: str | None = None
    organization: str | None = None


async def bootstrap(
    database: Database, at: int, project_key: str | None = None, org_key: str | None = None
) -> Bootstrap:
    """Create the demo organization and project if there is no organization yet, with the chosen keys, verbatim.

    The database must be up to date; `at` is in milliseconds. `first_keys` makes the other keys once somebody can see
    them.

    Raises:
        WrongSetting: a chosen key is or was the key of another owner.
    """
    async with database.writing() as connection:
        if await connection.scalar(select(organizations.c.id).limit(1)) is None:
            demo = await add_organization(connection, NAME, at)
            await add_project(connection, demo.organization, NAME, at, CHOICES)
        unseen = tuple(await connection.scalars(select(keys.c.digest).where(keys.c.shown == keyring.UNSEEN)))
        keyless = await _keyless(connection, unseen)
        for owner in tuple(keyless):
            if chosen := project_key if owner.project else org_key:
                # The owner never had a key, so whoever has or had this one is another.
                taken = exists().where(keys.c.digest == apikeys.digest(chosen))
                if await connection.scalar(select(taken)):
                    field = "bootstrap_project_key" if owner.project else "bootstrap_org_key"
                    raise WrongSetting(field, "this key is or was another owner's: choose a new one")
                await keyring.issue(connection, owner, at, chosen)
                keyless.remove(owner)
        settings = {"bootstrap_project_key": project_key, "bootstrap_org_key": org_key}
        unused = [name for name, key in settings.items() if key and await keyring.owner_of(connection, key) is None]
    return Bootstrap(tuple("project" if owner.project else "organization" for owner in keyless), unseen, tuple(unused))


@asynccontextmanager
async def first_keys(database: Database, at: int, demo: Bootstrap) -> AsyncIterator[FirstKeys]:
    """Issue the keys that nobody has seen yet, for the body to show; `at` is in milliseconds.

    The keys are valid inside the body and marked as seen after it. If the body fails or the process dies, the next
    start replaces them, so no key is lost unseen.
    """
    async with database.writing() as connection:
        owners = await _keyless(connection, demo.unseen)
        fresh = {bool(owner.project): await keyring.issue(connection, owner, at, unseen=True) for owner in owners}
    yield FirstKeys(fresh.get(True), fresh.get(False))
    async with database.writing() as connection:
        for key in fresh.values():
            await keyring.note_seen(connection, key)


async def _keyless(connection: AsyncConnection, unseen: Sequence[bytes]) -> list[Owner]:
    """Return the owners among the demo organization and its project that never had a key, not counting `unseen` ones.

    A revoked key counts, and so does a key that another node is about to show.
    """
    seen = (keys.c.shown != keyring.UNSEEN) | keys.c.digest.not_in(unseen)
    never = ~exists().where(keys.c.organization_id == organizations.c.id, keys.c.project_id.is_(None), seen)
    demo = select(organizations.c.id).where(organizations.c.name == NAME)
    owners = [Owner(str(id)) for id in await connection.scalars(demo.where(never))]
    never = ~exists().where(keys.c.project_id == projects.c.id, seen)
    query = select(projects.c.organization_id, projects.c.id).where(projects.c.organization_id.in_(demo))
    return owners + [Owner(*row) for row in await connection.execute(query.where(projects.c.name == NAME, never))]
