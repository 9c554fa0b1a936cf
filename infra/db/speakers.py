"""Registered speakers in the control plane's database, within the caps whoever adds at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import discards
from infra.db.database import Database
from infra.db.schema import organizations, samples, speakers
from streams.speakers.roster import MOST_SAMPLES, MOST_SPEAKERS, Enrolled, Model, Sample, crowded, full
from topics.errors import NotFound
from topics.keys import new_id

#: How long a voice file may be there before a sample takes it.
RESERVED_MS: Final = 3_600_000


class SqlRoster:
    """`streams.speakers.roster.Roster`. Every call may raise DirectoryDown."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def enrolled(self, organization: str) -> Sequence[Enrolled]:
        """Return all speakers of an organization by name."""
        async with self._database.reading() as connection:
            return await _read(connection, speakers.c.organization_id == organization)

    async def speaker(self, organization: str, speaker: str) -> Enrolled | None:
        """Return one speaker, None when there is none of this name in the organization."""
        async with self._database.reading() as connection:
            return next(iter(await _read(connection, *_named(organization, speaker))), None)

    async def check_room(self, organization: str, speaker: str) -> None:
        """Raise RuleBroken when one more sample of this speaker would be over a cap."""
        async with self._database.reading() as connection:
            await _find_room(connection, organization, speaker)

    async def reserve(self, voice: str) -> None:
        """Note that a voice file is about to be written: unless `add` takes it, it is due after an hour."""
        async with self._database.writing() as connection:
            await discards.note(connection, [voice], self._now() + RESERVED_MS)

    async def add(self, organization: str, speaker: str, sample: Sample) -> Enrolled:
        """Add a sample to a speaker, who is made with the first one.

        Raises:
            RuleBroken: the organization has its most speakers, or the speaker their most samples.
            NotFound: the organization was deleted.
        """
        now = self._now()
        # Writers follow one another, so what is counted here is final.
        async with self._database.writing() as connection:
            if not await connection.scalar(select(organizations.c.id).where(organizations.c.id == organization)):
                raise NotFound("the organization was deleted")
            owner, last = await _find_room(connection, organization, speaker)
            if owner is None:
                owner = new_id()
                row = {"id": owner, "organization_id": organization, "name": speaker, "created_at": now}
                await connection.execute(insert(speakers).values(row))
            added = {"id": sample.id, "speaker_id": owner, "created_at": max(now, last + 1)}
            about = {"length_ms": sample.length_ms, "voice": sample.voice, **_embedding(sample)}
            await connection.execute(insert(samples).values(added | about))
            if sample.voice is not None:
                await discards.forget(connection, [sample.voice])
            (enrolled,) = await _read(connection, *_named(organization, speaker))
        return enrolled

    async def replace(self, organization: str, speaker: str, sample: Sample) -> bool:
        """Give the sample of this id another vector and model; False when it is gone."""
        owner = select(speakers.c.id).where(*_named(organization, speaker)).scalar_subquery()
        one = (samples.c.id == sample.id) & (samples.c.speaker_id == owner)
        async with self._database.writing() as connection:
            done = await connection.execute(update(samples).where(one).values(_embedding(sample)))
        return done.rowcount == 1

    async def remove(self, organization: str, speaker: str) -> Sequence[str] | None:
        """Delete a speaker; return the voice files, which are noted as due, None when there is no such speaker.

        Nothing of the name and the vectors is left in the database's files then, as far as `Database.scrub` can do it.
        """
        async with self._database.writing() as connection:
            owner = await connection.scalar(select(speakers.c.id).where(*_named(organization, speaker)))
            if owner is None:
                return None
            voices = await discards.note_speakers(connection, speakers.c.id == owner, self._now())
            await connection.execute(delete(speakers).where(speakers.c.id == owner))
        await self._database.scrub()
        return voices

    async def discarded(self, voices: Sequence[str]) -> None:
        """Forget the notes of voice files that are deleted."""
        async with self._database.writing() as connection:
            await discards.forget(connection, voices)

    async def to_discard(self) -> Sequence[str]:
        """Return voice files that are due to be deleted, the longest due first, 100 at most."""
        async with self._database.reading() as connection:
            return await discards.due(connection, self._now())

    def _now(self) -> int:
        return int(self._clock() * 1000)


async def _find_room(connection: AsyncConnection, organization: str, speaker: str) -> tuple[str | None, int]:
    """Return the id of a speaker, None when they are to be made, and when their last sample was added.

    Raises:
        RuleBroken: there is no room for another sample.
    """
    counted = select(speakers.c.id, func.count(samples.c.id), func.max(samples.c.created_at))
    query = counted.outerjoin_from(speakers, samples).where(*_named(organization, speaker)).group_by(speakers.c.id)
    found = (await connection.execute(query)).one_or_none()
    if found is not None:
        owner, count, last = found
        if count >= MOST_SAMPLES:
            raise crowded()
        return owner, last or 0
    others = select(func.count()).select_from(speakers).where(speakers.c.organization_id == organization)
    if (await connection.scalar(others) or 0) >= MOST_SPEAKERS:
        raise full()
    return None, 0


def _named(organization: str, speaker: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return speakers.c.organization_id == organization, speakers.c.name == speaker


def _embedding(sample: Sample) -> dict[str, object]:
    return {
        "vector": np.asarray(sample.vector, dtype="<f4").tobytes(),
        "model": sample.model.name,
        "model_sha256": sample.model.sha256,
    }


async def _read(connection: AsyncConnection, *where: ColumnElement[bool]) -> list[Enrolled]:
    """Return speakers by name; every one has a sample."""
    of_samples = ("id", "vector", "model", "model_sha256", "length_ms", "voice")
    columns = (speakers.c.name, speakers.c.created_at, *(samples.c[name] for name in of_samples))
    query = select(*columns).join_from(speakers, samples).where(*where).order_by(speakers.c.id, samples.c.created_at)
    found = [
        Enrolled(name, created_at, tuple(_sample(*row[2:]) for row in group))
        for (name, created_at), group in groupby(await connection.execute(query), key=lambda row: row[:2])
    ]
    # Databases do not agree on the order of names.
    return sorted(found, key=lambda one: one.name)


def _sample(name: str, vector: bytes, model: str, sha256: str, length_ms: int, voice: str | None) -> Sample:
    return Sample(name, np.frombuffer(vector, dtype="<f4"), Model(model, sha256), length_ms, voice)
