"""Sounds that projects teach: stored in the database, learnt on the embeddings of the second model in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from infra.db.database import Database
from infra.db.own_sounds import SqlOwnSounds
from infra.teaching.names import check_name
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.models.own_sounds import POINT, score
from streams.models.packing import pack
from streams.quota import MOST_WAITING, SharedQuota
from topics.errors import BadRequest, NotFound, Unavailable
from topics.hearing import OwnSound
from topics.ports.own_sounds import Mark, TaughtSound

if TYPE_CHECKING:
    from infra.teaching.lesson import Lesson

NO_SECOND: Final = "the sound model in use has no second model, on which sounds are learnt: use `yamnet-ced`"


class OwnSounds(SqlOwnSounds):
    """Implements the port `topics.ports.own_sounds.OwnSoundStore`."""

    def __init__(self, database: Database, models: LoadedModels) -> None:
        super().__init__(database)
        self._models = models
        #: Lessons compute for some seconds, in threads that uploads need too: one at a time.
        self._lessons = SharedQuota(1, MOST_WAITING)
        #: Projects with a lesson.
        self._learning: set[str] = set()

    async def sounds(self, project: str) -> Sequence[TaughtSound]:
        second = self._models.current.manifest.second
        return await self.taught(project, None if second is None else second.graph.sha256)

    async def mark(self, project: str, name: str, mark: Mark) -> TaughtSound:
        known = [tag.name for tag in self._models.current.manifest.tags]
        check_name(name, known, f"choose another name, such as Our_{name.lower()}")
        await self.keep_mark(project, name, mark)
        return await self._sound(project, name)

    async def learn(self, project: str, name: str) -> TaughtSound:
        manifest = self._models.current.manifest
        if manifest.second is None:
            raise BadRequest(NO_SECOND)
        graph = manifest.second.graph.sha256
        marks = await self.marks(project, name, graph)

        if project in self._learning:
            raise Unavailable("the project is learning a sound already: try again when it is done", retry_after=2)
        self._learning.add(project)
        try:
            async with self._lessons.admit(project):
                learnt = await asyncio.to_thread(_study, marks, manifest)
        finally:
            self._learning.discard(project)
        await self.keep_learnt(project, OwnSound(name, graph, learnt.stream, learnt.recording), learnt.figures)
        return await self._sound(project, name)

    async def switch(self, project: str, name: str, on: bool) -> TaughtSound:
        await self.report(project, name, on)
        return await self._sound(project, name)

    def scores(self, sound: OwnSound, embeddings: bytes, recording: bool) -> bytes:
        head = np.frombuffer(sound.recording if recording else sound.stream, "<f4").astype(np.float32)
        stored = np.frombuffer(embeddings, np.int8).reshape(-1, len(head) - 1)
        return pack(score(head, stored)[:, None], (POINT,))

    async def _sound(self, project: str, name: str) -> TaughtSound:
        for sound in await self.sounds(project):
            if sound.name == name:
                return sound
        raise NotFound("the sound was deleted meanwhile")


def _study(marks: Sequence[Mark], manifest: Manifest) -> Lesson:
    # Imported here, so that starts do not wait for it.
    from infra.teaching import lesson

    return lesson.learn(marks, manifest)
