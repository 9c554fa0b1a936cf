"""Notes of voice files to delete: written in the transaction that gives up a file, kept until the file is gone."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, delete, select

# Its ON CONFLICT DO UPDATE compiles to the same text on SQLite.
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.schema import discards, samples, speakers

#: Files returned at once, so that a store has time to delete them.
MOST_DUE: Final = 100


async def note(connection: AsyncConnection, voices: Sequence[str], due_at: int) -> None:
    """Note voice files for deletion, not before `due_at` in milliseconds."""
    if voices:
        added = insert(discards)
        added = added.on_conflict_do_update(index_elements=["voice"], set_={"due_at": added.excluded.due_at})
        await connection.execute(added, [{"voice": voice, "due_at": due_at} for voice in voices])


async def note_speakers(connection: AsyncConnection, whose: ColumnElement[bool], due_at: int) -> list[str]:
    """Note all voice files of the matching speakers for deletion and return them."""
    query = select(samples.c.voice).join_from(speakers, samples).where(whose, samples.c.voice.is_not(None))
    voices = list(await connection.scalars(query.order_by(samples.c.created_at)))
    await note(connection, voices, due_at)
    return voices


async def forget(connection: AsyncConnection, voices: Sequence[str]) -> int:
    """Delete the notes of voice files that were deleted or taken by a sample; return how many there were."""
    if not voices:
        return 0
    return (await connection.execute(delete(discards).where(discards.c.voice.in_(voices)))).rowcount


async def due(connection: AsyncConnection, now: int) -> list[str]:
    """Return voice files to delete now, oldest due time first, at most `MOST_DUE`."""
    query = select(discards.c.voice).where(discards.c.due_at <= now)
    return list(await connection.scalars(query.order_by(discards.c.due_at, discards.c.voice).limit(MOST_DUE)))
