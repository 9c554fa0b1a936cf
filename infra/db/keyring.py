"""Keys in the database: a new key revokes the previous one, and only digests are stored."""

import hmac
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.changes import note_change
from infra.db.schema import keys
from topics import apikeys
from topics.apikeys import KeyKind

#: Stored in place of a key's last letters until somebody has seen the key.
UNSEEN: Final = ""
#: Noted in `infra.db.changes` when keys or tokens end, for processes that remember their holders.
ENDED: Final = "ended keys"


class Owner(msgspec.Struct, frozen=True):
    """The owner of a key: a project, or the organization itself."""

    organization: str
    project: str | None = None


async def issue(
    connection: AsyncConnection, owner: Owner, at: int, chosen: str | None = None, *, unseen: bool = False
) -> str:
    """Revoke the owner's live key and return a new one, random or `chosen`; `at` is in milliseconds.

    With `unseen`, the key counts as not seen by anybody until `note_seen`.
    """
    key = chosen or apikeys.new(KeyKind.PROJECT if owner.project else KeyKind.ORGANIZATION)
    await connection.execute(update(keys).where(live(owner)).values(revoked_at=at))
    await note_change(connection, ENDED)
    await connection.execute(
        insert(keys).values(
            organization_id=owner.organization,
            project_id=owner.project,
            digest=apikeys.digest(key),
            shown=UNSEEN if unseen else apikeys.redact(key),
            chosen=chosen is not None,
            created_at=at,
        )
    )
    return key


async def note_seen(connection: AsyncConnection, key: str) -> None:
    seen = update(keys).where(keys.c.digest == apikeys.digest(key)).values(shown=apikeys.redact(key))
    await connection.execute(seen)


async def owner_of(connection: AsyncConnection, key: str) -> Owner | None:
    """Return the holder of a live key, or None if it is unknown or revoked."""
    digest = apikeys.digest(key)
    query = select(keys.c.digest, keys.c.organization_id, keys.c.project_id)
    row = (await connection.execute(query.where(keys.c.digest == digest, keys.c.revoked_at.is_(None)))).one_or_none()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return Owner(row.organization_id, row.project_id)


async def chosen(connection: AsyncConnection) -> frozenset[bytes]:
    """Return the digests of live keys that an operator chose. There are few, in any form."""
    return frozenset(await connection.scalars(select(keys.c.digest).where(keys.c.chosen, keys.c.revoked_at.is_(None))))


def live(owner: Owner) -> ColumnElement[bool]:
    """Return the SQL condition for the owner's live key."""
    return (
        (keys.c.organization_id == owner.organization)
        & (keys.c.project_id == owner.project)  # `IS NULL` for the organization's own key
        & keys.c.revoked_at.is_(None)
    )
