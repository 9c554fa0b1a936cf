"""Notes that something in the database has changed, for processes that remember it; a note is a row of `secrets`."""

import secrets as random

from sqlalchemy import select

# Its ON CONFLICT DO UPDATE compiles to the same text on SQLite.
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.schema import secrets


async def note_change(connection: AsyncConnection, name: str) -> None:
    noted = insert(secrets).values(name=name, value=random.token_bytes(16))
    await connection.execute(noted.on_conflict_do_update(index_elements=["name"], set_={"value": noted.excluded.value}))


async def last_change(connection: AsyncConnection, name: str) -> bytes | None:
    """Return bytes that differ after each change."""
    noted: bytes | None = await connection.scalar(select(secrets.c.value).where(secrets.c.name == name))
    return noted
