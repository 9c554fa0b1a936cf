"""Registered speakers in the control plane's database; the caps hold under concurrent writes."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec
import numpy as np
from sqlalchemy import ColumnElement, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import discards
from infra.db.database import Store
from infra.db.schema import organizations, samples, speakers
from streams.clients.embeddings import EmbeddingModel
from streams.speakers.speaker_store import EnrolledSpeaker, VoiceSample
from topics.errors import NotFound, Unavailable
from topics.keys import new_id
from topics.ports.speakers import MAX_SAMPLES, MAX_SPEAKERS, too_many_samples, too_many_speakers

#: How long a voice file may exist before a sample takes it.
RESERVED_MS: Final = 3_600_000

_OF_SAMPLE: Final = tuple(samples.c[name] for name in ("id", "vector", "model", "model_sha256", "length_ms", "voice"))
_others: Final = speakers.alias()
#: Selects the number of speakers of an organization, and one speaker with all samples. The statements are built once,
#: because building takes longer than running them.
_SPEAKER_STATE: Final = (
    select(
        select(func.count()).where(_others.c.organization_id == organizations.c.id).scalar_subquery(),
        speakers.c.id,
        speakers.c.created_at,
        speakers.c.display_name,
        samples.c.created_at,
        *_OF_SAMPLE,
    )
    .select_from(organizations)
    .outerjoin(speakers, (speakers.c.organization_id == organizations.c.id) & (speakers.c.name == bindparam("speaker")))
    .outerjoin(samples)
    .where(organizations.c.id == bindparam("organization"))
    .order_by(samples.c.created_at)
)
_ADD_SPEAKER: Final = insert(speakers)
_ADD_SAMPLE: Final = insert(samples)


class _SpeakerState(msgspec.Struct, frozen=True):
    """A speaker about to get another sample."""

    id: str
    enrolled: EnrolledSpeaker
    #: When the last sample was added; 0 for a new speaker.
    last: int


class SqlSpeakerStore(Store):
    """Implements the port `streams.speakers.speaker_store.SpeakerStore`."""

    async def count(self, outdated_for: EmbeddingModel | None = None) -> int:
        counted = select(func.count()).select_from(speakers)
        if outdated_for is not None:
            same = (samples.c.model == outdated_for.name) & (samples.c.model_sha256 == outdated_for.sha256)
            counted = select(func.count(samples.c.speaker_id.distinct())).where(~same)
        async with self._database.reading() as connection:
            return await connection.scalar(counted) or 0

    async def enrolled(self, organization: str) -> Sequence[EnrolledSpeaker]:
        """Return all speakers of an organization by name."""
        async with self._database.reading() as connection:
            return await _read(connection, speakers.c.organization_id == organization)

    async def speaker(self, organization: str, speaker: str) -> EnrolledSpeaker | None:
        """Return one speaker, or None if the organization has none of this name."""
        async with self._database.reading() as connection:
            return next(iter(await _read(connection, *_by_name(organization, speaker))), None)

    async def check_room(self, organization: str, speaker: str) -> None:
        """Raise the errors that `add` would raise."""
        async with self._database.reading() as connection:
            await _speaker_state(connection, organization, speaker, self._now())

    async def reserve(self, voice: str) -> None:
        """Note that a voice file is about to be written; it is due for deletion after an hour unless `add` takes it."""
        async with self._database.writing() as connection:
            await discards.note(connection, [voice], self._now() + RESERVED_MS)

    async def add(self, organization: str, speaker: str, sample: VoiceSample) -> EnrolledSpeaker:
        """Add a sample to a speaker; the first sample creates the speaker.

        Raises:
            RuleBroken: the organization or the speaker is at its limit.
            NotFound: the organization was deleted.
            Unavailable: the voice file came too late and was given up.
        """
        now = self._now()
        # Writers run one at a time, so this count is final.
        async with self._database.writing() as connection:
            owner = await _speaker_state(connection, organization, speaker, now)
            if not owner.enrolled.samples:
                row = {"id": owner.id, "organization_id": organization, "name": speaker, "created_at": now}
                await connection.execute(_ADD_SPEAKER, row)
            added = {"id": sample.id, "speaker_id": owner.id, "created_at": max(now, owner.last + 1)}
            about = {"length_ms": sample.length_ms, "voice": sample.voice, **_embedding(sample)}
            await connection.execute(_ADD_SAMPLE, added | about)
            if sample.voice is not None and not await discards.forget(connection, [sample.voice]):
                # Another node deleted the note and may be about to delete the file.
                raise Unavailable("the recording was kept too late")
        return msgspec.structs.replace(owner.enrolled, samples=(*owner.enrolled.samples, sample))

    async def replace(self, organization: str, speaker: str, sample: VoiceSample) -> bool:
        owner = select(speakers.c.id).where(*_by_name(organization, speaker)).scalar_subquery()
        one = (samples.c.id == sample.id) & (samples.c.speaker_id == owner)
        async with self._database.writing() as connection:
            done = await connection.execute(update(samples).where(one).values(_embedding(sample)))
        return done.rowcount == 1

    async def name(self, organization: str, speaker: str, display_name: str | None) -> bool:
        named = update(speakers).where(*_by_name(organization, speaker)).values(display_name=display_name)
        async with self._database.writing() as connection:
            done = await connection.execute(named)
        await self._database.scrub()  # The name of before is personal too.
        return done.rowcount == 1

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        """Delete a speaker and note the voice files as due; return them, or None if there is no such speaker.

        The name and vectors are then gone from the database's files, as far as `Database.scrub` can.
        """
        async with self._database.writing() as connection:
            owner = await connection.scalar(select(speakers.c.id).where(*_by_name(organization, speaker)))
            if owner is None:
                return None
            voices = await discards.note_speakers(connection, speakers.c.id == owner, self._now())
            await connection.execute(delete(speakers).where(speakers.c.id == owner))
        await self._database.scrub()
        return voices

    async def discarded(self, voices: Sequence[str]) -> None:
        async with self._database.writing() as connection:
            await discards.forget(connection, voices)

    async def to_discard(self) -> Sequence[str]:
        """Return voice files due for deletion, oldest due time first, at most 100."""
        async with self._database.reading() as connection:
            return await discards.due(connection, self._now())


async def _speaker_state(connection: AsyncConnection, organization: str, speaker: str, now: int) -> _SpeakerState:
    """Return a speaker that may get another sample; a missing one is prepared as new.

    Raises:
        RuleBroken, NotFound: see `SqlSpeakerStore.add`.
    """
    rows = (await connection.execute(_SPEAKER_STATE, {"organization": organization, "speaker": speaker})).all()
    if not rows:
        raise NotFound("the organization was deleted")
    count, owner, created_at, shown, *_ = rows[0]
    if owner is None:
        if count >= MAX_SPEAKERS:
            raise too_many_speakers()
        return _SpeakerState(new_id(), EnrolledSpeaker(speaker, now, ()), 0)
    if len(rows) >= MAX_SAMPLES:
        raise too_many_samples()
    return _SpeakerState(
        owner, EnrolledSpeaker(speaker, created_at, tuple(_sample(*row[5:]) for row in rows), shown), rows[-1][4]
    )


def _by_name(organization: str, speaker: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return speakers.c.organization_id == organization, speakers.c.name == speaker


def _embedding(sample: VoiceSample) -> dict[str, object]:
    return {
        "vector": np.asarray(sample.vector, dtype="<f4").tobytes(),
        "model": sample.model.name,
        "model_sha256": sample.model.sha256,
    }


async def _read(connection: AsyncConnection, *where: ColumnElement[bool]) -> list[EnrolledSpeaker]:
    """Return speakers by name; each has at least one sample."""
    query = (
        select(speakers.c.name, speakers.c.created_at, speakers.c.display_name, *_OF_SAMPLE)
        .join_from(speakers, samples)
        .where(*where)
        .order_by(speakers.c.id, samples.c.created_at)
    )
    speakers_by_id = [
        EnrolledSpeaker(name, created_at, tuple(_sample(*row[3:]) for row in group), shown)
        for (name, created_at, shown), group in groupby(await connection.execute(query), key=lambda row: row[:3])
    ]
    # Databases do not agree on the order of names.
    return sorted(speakers_by_id, key=lambda speaker: speaker.name)


def _sample(name: str, vector: bytes, model: str, sha256: str, length_ms: int, voice: str | None) -> VoiceSample:
    return VoiceSample(name, np.frombuffer(vector, dtype="<f4"), EmbeddingModel(model, sha256), length_ms, voice)
