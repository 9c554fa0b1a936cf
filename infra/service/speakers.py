"""Registered speakers in this deployment: their engine, their voice files, and the deletion of files that are due."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from infra import models
from streams.clients.address import EngineAddress
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel, VoiceEmbedding
from streams.models.protocol import Floats
from streams.voice import speaker_manifest as manifest
from streams.voice.overlap import OnnxOverlapDetector
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import SpeakerManifest
from topics.errors import EngineError, ServiceFault

log = structlog.get_logger("infra.service")

Model = TypeVar("Model")

#: The bundled model: this process separates speakers with it, and the bundled engine uses it too.
DIRECTORY: Final = models.directory(models.SPEAKERS)
OVERLAP_DIRECTORY: Final = models.directory(models.OVERLAP)
SWEEP_SECONDS: Final = 30.0


class LoadedOnce(Generic[Model]):
    """A model that is loaded on first use: most deployments with only sessions never need one for voices."""

    def __init__(self, load: Callable[[], Model]) -> None:
        """Load with `load`; retry after a failure."""
        self._load = load
        self._loading = threading.Lock()

    @cached_property
    def _loaded(self) -> Model:
        return self._load()

    def __call__(self) -> Model:
        """Return the model; blocks until it is loaded.

        Raises:
            EngineError: it is missing or damaged.
        """
        with self._loading:
            return self._loaded


class SpeakerModel:
    """A speaker model that is loaded with the first voice."""

    def __init__(self, directory: Path) -> None:
        self._engine = LoadedOnce(lambda: OnnxSpeakerEngine(directory))

    @property
    def manifest(self) -> SpeakerManifest:
        return self._engine().manifest

    def embed(self, samples: Floats) -> Floats:
        return self._engine().embed(samples)


class OverlapModel:
    """A network that detects two voices at once, loaded with the first recording of several speakers."""

    def __init__(self, directory: Path) -> None:
        self._detector = LoadedOnce(lambda: _overlap_detector(directory))

    @property
    def manifest(self) -> OverlapManifest:
        return self._detector().manifest

    def probabilities(self, samples: Floats) -> Floats:
        return self._detector().probabilities(samples)


def _overlap_detector(directory: Path) -> OnnxOverlapDetector:
    try:
        return OnnxOverlapDetector(directory)
    except EngineError as error:
        log.error("overlap.unusable", reason=str(error))
        # Users of jobs read this message; paths are for the operator.
        raise EngineError("the model for it is missing or damaged") from error


class NoEngine(EmbeddingClient):
    """Stands in if the deployment has no speaker engine."""

    def __init__(self) -> None:
        super().__init__(EngineAddress(url="http://localhost", timeout_s=1))

    async def embed(self, wav: bytes, idempotency_key: str) -> VoiceEmbedding:
        raise ServiceFault("there is no speaker engine: the bundled one is off, and EARSHOT_SPEAKER_URL is not set")


def bundled_model() -> EmbeddingModel:
    """Return the name and hash of the bundled engine's model without calling the engine."""
    bundled = manifest.read(DIRECTORY)
    return EmbeddingModel(bundled.model_id, bundled.graph.sha256)


async def keep_sweeping(sweep: Callable[[], Awaitable[None]]) -> None:
    """Delete due files now and every half minute."""
    while True:
        await sweep()
        await asyncio.sleep(SWEEP_SECONDS)
