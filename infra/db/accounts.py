"""Create, list and delete organizations and projects; issue their keys and set their plans."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Table, and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import discards, keyring, tokens
from infra.db.alarm_settings import RULES
from infra.db.changes import note_change
from infra.db.database import Store
from infra.db.keyring import Owner
from infra.db.ledger import month_of, used_ms
from infra.db.own_sounds import sounds_on
from infra.db.schema import deleted_projects, keys, organizations, projects, speakers
from infra.db.tokens import Purpose
from topics import apikeys
from topics.choices import Choices
from topics.errors import BadRequest, NotFound
from topics.keys import new_id
from topics.ports.administration import LONGEST_NAME, MOST_SECONDS, Organization, Project
from topics.ports.directory import AudioLink, Principal

_NOUN: Final = {organizations: "organization", projects: "project"}


class Accounts(Store):
    """Manages who may use the service. Arguments name an organization or a project by id, or by name if that is unique.

    Unknown references raise NotFound; a name that is ambiguous, taken, or not 1 to 40 printable characters raises
    BadRequest. Keys are returned once: the database stores only digests.
    """

    async def create_organization(self, name: str) -> tuple[Organization, str]:
        now = self._now()
        async with self._database.writing() as connection:
            owner = await add_organization(connection, name, now)
            key = await keyring.issue(connection, owner, now)
        return Organization(owner.organization, name, now, apikeys.redact(key)), key

    async def organizations(self) -> list[Organization]:
        own_key = (keys.c.organization_id == organizations.c.id) & keys.c.project_id.is_(None)
        query = (
            select(organizations.c.id, organizations.c.name, organizations.c.created_at, keys.c.shown)
            .outerjoin_from(organizations, keys, own_key & keys.c.revoked_at.is_(None))
            .order_by(organizations.c.name)
        )
        async with self._database.reading() as connection:
            return [Organization(*row) for row in await connection.execute(query)]

    async def rotate_organization_key(self, organization: str) -> str:
        async with self._database.writing() as connection:
            owner = Owner(await _find(connection, organizations, organization))
            return await keyring.issue(connection, owner, self._now())

    async def delete_organization(self, organization: str) -> None:
        """Delete an organization as `delete_project` does its projects; note its voice files for deletion."""
        async with self._database.writing() as connection:
            owner = await _find(connection, organizations, organization)
            await discards.note_speakers(connection, speakers.c.organization_id == owner, self._now())
            await _note_deleted(connection, projects.c.organization_id == owner)
            await connection.execute(delete(organizations).where(organizations.c.id == owner))
        await self._database.scrub()

    async def create_project(self, name: str, organization: str | None = None) -> tuple[Project, str]:
        now = self._now()
        async with self._database.writing() as connection:
            owner_id = await _find(connection, organizations, organization)
            owner = await add_project(connection, owner_id, name, now, Choices())
            key = await keyring.issue(connection, owner, now)
        return Project(str(owner.project), name, owner.organization, now, apikeys.redact(key)), key

    async def projects(self, organization: str | None = None) -> list[Project]:
        columns = (projects.c.id, projects.c.name, projects.c.organization_id, projects.c.created_at, keys.c.shown)
        query = (
            select(*columns, projects.c.free_seconds)
            .outerjoin_from(projects, keys, and_(keys.c.project_id == projects.c.id, keys.c.revoked_at.is_(None)))
            .order_by(projects.c.name, projects.c.id)
        )
        async with self._database.reading() as connection:
            if organization is not None:
                query = query.where(projects.c.organization_id == await _find(connection, organizations, organization))
            return [Project(*row) for row in await connection.execute(query)]

    async def rotate_project_key(self, project: str) -> str:
        async with self._database.writing() as connection:
            row_id = await _find(connection, projects, project)
            organization = await connection.scalar(select(projects.c.organization_id).where(projects.c.id == row_id))
            return await keyring.issue(connection, Owner(str(organization), row_id), self._now())

    async def plan(self, project: str, free_seconds: int | None) -> None:
        if free_seconds is not None and not 0 <= free_seconds <= MOST_SECONDS:
            raise BadRequest(f"free seconds are a number from 0 to {MOST_SECONDS}")
        async with self._database.writing() as connection:
            row_id = await _find(connection, projects, project)
            await connection.execute(update(projects).where(projects.c.id == row_id).values(free_seconds=free_seconds))

    async def find_project(self, project: str, organization: str | None = None) -> str:
        """Return the id of a project, within an organization (id) if one is given."""
        async with self._database.reading() as connection:
            return await _find(connection, projects, project, organization)

    async def find_organization(self, organization: str) -> str:
        async with self._database.reading() as connection:
            return await _find(connection, organizations, organization)

    async def delete_project(self, project: str) -> None:
        """Delete a project with its keys and sounds; note it, so that nodes delete its sessions and jobs."""
        async with self._database.writing() as connection:
            row_id = await _find(connection, projects, project)
            await _note_deleted(connection, projects.c.id == row_id)
            await connection.execute(delete(projects).where(projects.c.id == row_id))
        await self._database.scrub()

    async def deleted_projects(self) -> list[str]:
        """Return the ids of all projects that were deleted."""
        async with self._database.reading() as connection:
            return list(await connection.scalars(select(deleted_projects.c.project_id)))

    async def chosen_keys(self) -> frozenset[bytes]:
        """Return the digests of live keys that an operator chose."""
        async with self._database.reading() as connection:
            return await keyring.chosen(connection)

    async def project_of(self, key: str) -> Principal | None:
        """Return the holder of a project key, or None if the key is unknown, revoked or of another kind."""
        async with self._database.reading() as connection:
            owner = await self._owner_of(connection, key)
            if owner is None or owner.project is None:
                return None
            plan = select(projects.c.free_seconds, projects.c.choices).where(projects.c.id == owner.project)
            row = (await connection.execute(plan)).one_or_none()
            sounds = await sounds_on(connection, owner.project)
        if row is None:
            return None
        return Principal(owner.project, owner.organization, row.free_seconds, choices_of(row.choices), sounds)

    async def link_audio(self, key: str, job: str) -> str | None:
        async with self._database.writing() as connection:
            return await tokens.issue_audio(connection, key, self._now(), job)

    async def audio_link(self, token: str) -> AudioLink | None:
        """Return what a link to a recording opens, or None if the link has expired."""
        async with self._database.reading() as connection:
            return await tokens.audio_link(connection, token, self._now())

    async def exhausted(self, principal: Principal) -> bool:
        """Return True if a project has spent its free seconds of this month (UTC)."""
        if principal.free_seconds is None:
            return False
        async with self._database.reading() as connection:
            used = await used_ms(connection, principal.project, month_of(self._now()))
        return used >= principal.free_seconds * 1000

    async def organization_of(self, key: str) -> str | None:
        """Return the organization of an organization key, or None if the key is unknown, revoked or of another kind."""
        async with self._database.reading() as connection:
            owner = await self._owner_of(connection, key)
        return owner.organization if owner and not owner.project else None

    async def _owner_of(self, connection: AsyncConnection, key: str) -> Owner | None:
        owner = await keyring.owner_of(connection, key)
        return owner or await tokens.owner_of(connection, Purpose.PASS, key, self._now())


#: Decodes the choices in a project's row.
choices_of: Final = msgspec.json.Decoder(Choices).decode


async def add_organization(connection: AsyncConnection, name: str, at: int) -> Owner:
    """Insert an organization without a key."""
    owner = Owner(new_id())
    with _unless_taken(f"organization {_checked_name(name)!r}"):
        await connection.execute(insert(organizations).values(id=owner.organization, name=name, created_at=at))
    return owner


async def add_project(
    connection: AsyncConnection,
    organization: str,
    name: str,
    at: int,
    choices: Choices,
) -> Owner:
    """Insert a project without a key into an organization, given by id."""
    project = new_id()
    row = {
        "id": project,
        "organization_id": organization,
        "name": name,
        "created_at": at,
        "choices": msgspec.json.encode(choices).decode(),
    }
    with _unless_taken(f"project {_checked_name(name)!r}"):
        await connection.execute(insert(projects).values(row))
    return Owner(organization, project)


async def _find(
    connection: AsyncConnection, table: Table, reference: str | None, organization: str | None = None
) -> str:
    """Return the id of `reference`, within an organization if one is given; None stands for the only row."""
    noun, query = _NOUN[table], select(table.c.id).limit(2)
    if organization is not None:
        query = query.where(table.c.organization_id == organization)
    if reference is None:
        none, several = f"there is no {noun} yet", f"say which {noun}, by id or name (--org)"
    else:
        none, several = f"there is no {noun} {reference!r}", f"there are several {noun}s {reference!r}: give the id"
        query = query.where(or_(table.c.id == reference, table.c.name == reference))
        if not reference.isprintable():  # Databases reject some characters that no name contains.
            raise NotFound(none)
    ids = [str(one) for one in await connection.scalars(query)]
    if not ids:
        raise NotFound(none)
    if len(ids) > 1:
        raise BadRequest(several)
    return ids[0]


async def _note_deleted(connection: AsyncConnection, whose: ColumnElement[bool]) -> None:
    ids = select(projects.c.id).where(whose)
    await connection.execute(insert(deleted_projects).from_select(["project_id"], ids))
    for what in keyring.ENDED, RULES:
        await note_change(connection, what)


def _checked_name(name: str) -> str:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadRequest(f"a name has 1 to {LONGEST_NAME} printable characters and no space at either end")
    return name


@contextmanager
def _unless_taken(what: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise BadRequest(f"{what} exists already") from error
