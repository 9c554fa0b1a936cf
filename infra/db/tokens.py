"""Random tokens that open something for a limited time: sign-in links, browsers' session tokens, recording links.

Only digests are stored, so a stolen database opens nothing. A token belongs to a key and ends with it.
"""

from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db.changes import note_change
from infra.db.keyring import ENDED, Owner, live
from infra.db.schema import keys, tokens
from topics import apikeys
from topics.apikeys import KeyKind
from topics.ports.directory import AUDIO_LINK_SECONDS, AudioLink


class Purpose(StrEnum):
    """What a token opens."""

    #: Exchanged once for session tokens.
    LINK = "link"
    #: Works as its key, but cannot change it.
    PASS = "pass"
    #: Opens the recording of one job.
    AUDIO = "audio"


SECONDS: Final = {Purpose.LINK: 600, Purpose.PASS: 12 * 3600, Purpose.AUDIO: AUDIO_LINK_SECONDS}
_KIND: Final = {Purpose.LINK: KeyKind.LINK, Purpose.PASS: KeyKind.PASS, Purpose.AUDIO: KeyKind.AUDIO}
#: The most tokens of one purpose that a key has; a new one replaces the oldest.
MOST: Final = 1000


async def issue(connection: AsyncConnection, purpose: Purpose, owner: Owner, now: int) -> str | None:
    """Store and return a new token of the owner's live key, or None if there is none; `now` is in milliseconds."""
    return await _issue(connection, purpose, await connection.scalar(select(keys.c.id).where(live(owner))), now)


async def issue_audio(connection: AsyncConnection, credential: str, now: int, job: str) -> str | None:
    """Store and return a new link to a recording, bound to the key of a key or session token, None if it has ended.

    Not bound to its owner's live key: an edge may still accept a key that was just revoked.
    """
    digest = apikeys.digest(credential)
    key = await connection.scalar(select(keys.c.id).where(keys.c.digest == digest, keys.c.revoked_at.is_(None)))
    if key is None:
        opening = _opening(Purpose.PASS, credential, now)
        key = await connection.scalar(opening.with_only_columns(keys.c.id))
    return await _issue(connection, Purpose.AUDIO, key, now, job)


async def _issue(
    connection: AsyncConnection, purpose: Purpose, key: int | None, now: int, job: str | None = None
) -> str | None:
    if key is None:
        return None
    token = apikeys.new(_KIND[purpose])
    siblings = (tokens.c.key_id == key) & (tokens.c.purpose == purpose)
    oldest = select(tokens.c.digest).where(siblings).order_by(tokens.c.ends_at.desc()).offset(MOST - 1)
    await connection.execute(delete(tokens).where((tokens.c.ends_at <= now) | tokens.c.digest.in_(oldest)))
    await connection.execute(
        insert(tokens).values(
            digest=apikeys.digest(token), purpose=purpose, key_id=key, job_id=job, ends_at=now + SECONDS[purpose] * 1000
        )
    )
    return token


async def owner_of(connection: AsyncConnection, purpose: Purpose, token: str, now: int) -> Owner | None:
    """Return the owner of a token's key, or None if the token or its key is invalid."""
    row = (await connection.execute(_opening(purpose, token, now))).one_or_none()
    return None if row is None else Owner(row.organization_id, row.project_id)


async def audio_link(connection: AsyncConnection, token: str, now: int) -> AudioLink | None:
    """Return what a link to a recording opens, or None if it is invalid."""
    row = (await connection.execute(_opening(Purpose.AUDIO, token, now))).one_or_none()
    return None if row is None else AudioLink(row.project_id, row.organization_id, row.job_id, row.ends_at)


async def end(connection: AsyncConnection, purpose: Purpose, token: str) -> bool:
    """Delete a token; return whether it existed."""
    ended = await connection.execute(delete(tokens).where(_is(purpose, token)))
    await note_change(connection, ENDED)
    return ended.rowcount > 0


def _opening(purpose: Purpose, token: str, now: int) -> Select[Any]:
    return (
        select(keys.c.organization_id, keys.c.project_id, tokens.c.job_id, tokens.c.ends_at)
        .join_from(tokens, keys, keys.c.id == tokens.c.key_id)
        .where(_is(purpose, token), tokens.c.ends_at > now, keys.c.revoked_at.is_(None))
    )


def _is(purpose: Purpose, token: str) -> ColumnElement[bool]:
    return (tokens.c.digest == apikeys.digest(token)) & (tokens.c.purpose == purpose)
