"""The speaker service with doubles around it: in-memory stores, an engine over HTTP, voices that are tones."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import Any, TypeVar

import numpy as np
import soundfile

from streams.audio.decode import open_file
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel
from streams.models.protocol import Floats
from streams.speakers.registered_speakers import SpeakerService
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speech_segments import RATE
from streams.workers.first_second import probe_recording
from tests.audio import encoded
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.speakers.memory import MemoryFiles, MemorySpeakerStore
from tests.unit.streams.voice.tones import Ear, Tones
from topics.media import Media
from topics.ports.prober import ProbeResult

T = TypeVar("T")
ORGANIZATION = "an-organization"
MODEL = EmbeddingModel("tones", "0" * 64)


def recorded(samples: Floats, kind: str = "WAV", rate: int = RATE) -> bytes:
    """Return samples as a file, attenuated so that nothing clips."""
    return encoded(samples * np.float32(0.9), rate, kind)


def heard(asked: Asked) -> Floats:
    """Return the audio that the engine got."""
    samples: Floats = soundfile.read(io.BytesIO(asked.fields["file"][0]), dtype="float32")[0]
    return samples


class Here:
    """A prober in this process."""

    async def probe(self, file: int, declared: Media | None) -> ProbeResult:
        with os.fdopen(os.dup(file), "rb") as source:
            return probe_recording(source, declared)


class Attentive(Ear):
    """Counts the frames that it gets."""

    frames = 0

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        self.frames += len(frames)
        return super().run(frames, state)


class House:
    """A service, and everything that tests check."""

    def __init__(self, voices: SpeakerEngine | None = None) -> None:
        self.voices = voices or Tones()
        self.engine = HttpEngine(self.answer)
        self.store = MemorySpeakerStore()
        self.files = MemoryFiles()
        self.model = MODEL
        self.threshold: float | None = 0.9
        self.per_doubling = 0.0
        #: Warnings given to jobs.
        self.warnings: list[str] = []

    def answer(self, asked: Asked) -> bytes:
        vector = self.voices.embed(heard(asked)).tolist()
        found = {"object": "embedding", "index": 0, "embedding": vector}
        told = {"model": self.model.name, "sha256": self.model.sha256, "threshold": self.threshold}
        told["threshold_per_doubling"] = self.per_doubling
        return reply({"object": "list", "data": [found], **told})

    @asynccontextmanager
    async def open(self, *, timeout_s: float = 60.0, **given: Any) -> AsyncIterator[SpeakerService]:
        given = {"keep": True, "load_detector": Ear, **given}
        async with self.engine.running():
            engine = EmbeddingClient(self.engine.address(timeout_s=timeout_s))
            service = SpeakerService(self.store, self.files, Here(), open_file, engine, self.voices, **given)
            try:
                yield service
            finally:
                await service.close()

    def run(self, scene: Callable[[SpeakerService], Awaitable[T]], **given: Any) -> T:
        async def whole() -> T:
            async with self.open(**given) as service:
                return await scene(service)

        return asyncio.run(whole())


async def sent(deed: Callable[[int], Awaitable[T]], data: bytes) -> T:
    """Call with the descriptor of a file that is closed as soon as the call has ended."""
    with TemporaryFile() as file:
        file.write(data)
        file.flush()
        return await deed(file.fileno())


async def register(service: SpeakerService, speaker: str, data: bytes, organization: str = ORGANIZATION) -> Any:
    return await sent(lambda file: service.register(organization, speaker, file), data)


async def recognize(service: SpeakerService, data: bytes, organization: str = ORGANIZATION) -> Any:
    return await sent(lambda file: service.recognize(organization, file), data)
