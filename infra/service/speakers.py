"""Registered speakers in this deployment: their engine, their voice files, and the deletion of files that are due."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from infra import models
from infra.db.database import Database
from infra.service.administration import SqlAdministration
from streams.clients.address import EngineAddress
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel, VoiceEmbedding
from streams.models.protocol import Floats
from streams.voice import speaker_manifest as manifest
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import SpeakerManifest
from topics.errors import ServiceFault

#: The bundled model, in this process for telling the speakers of a recording apart, and in the bundled engine.
DIRECTORY: Final = models.directory(models.SPEAKERS)
SWEEP_SECONDS: Final = 30.0


class SpeakerModel:
    """A speaker model that is loaded with the first voice: most deployments of sessions alone never hear one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loading = threading.Lock()

    @cached_property
    def _loaded(self) -> OnnxSpeakerEngine:
        return OnnxSpeakerEngine(self._directory)

    def _engine(self) -> OnnxSpeakerEngine:
        with self._loading:
            return self._loaded

    @property
    def manifest(self) -> SpeakerManifest:
        """The model's input, output and thresholds; blocks until it is loaded."""
        return self._engine().manifest

    def embed(self, samples: Floats) -> Floats:
        return self._engine().embed(samples)


class NoEngine(EmbeddingClient):
    """Stands in if a deployment has no speaker engine."""

    def __init__(self) -> None:
        super().__init__(EngineAddress(url="http://localhost", timeout_s=1))

    async def embed(self, wav: bytes, idempotency_key: str) -> VoiceEmbedding:
        """Raise ServiceFault."""
        raise ServiceFault("there is no speaker engine: the bundled one is off, and EARSHOT_SPEAKER_URL is not set")


def bundled_model() -> EmbeddingModel:
    """Return the name and hash of the bundled engine's model without asking the engine."""
    bundled = manifest.read(DIRECTORY)
    return EmbeddingModel(bundled.model_id, bundled.graph.sha256)


class Operator(SqlAdministration):
    """An operator beside a running service: deleting an organization also deletes its voices."""

    def __init__(self, database: Database, sweep: Callable[[], Awaitable[None]]) -> None:
        super().__init__(database)
        self._sweep = sweep

    async def delete_organization(self, organization: str) -> None:
        """Delete an organization, its projects, keys and speakers, and begin to delete their voice files.

        Raises:
            NotFound: there is no such organization.
            DirectoryDown: the database does not answer.
        """
        await super().delete_organization(organization)
        await self._sweep()


async def keep_sweeping(sweep: Callable[[], Awaitable[None]]) -> None:
    """Delete what is due, now and every half minute."""
    while True:
        await sweep()
        await asyncio.sleep(SWEEP_SECONDS)
