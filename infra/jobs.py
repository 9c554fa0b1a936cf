"""What runs the services of jobs in this deployment: performers, their engines, and the child processes beside them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from infra import models
from infra.engines import CHAT_MODEL, SPEECH_MODEL, workers
from infra.engines.child import EngineServer
from infra.settings import Settings
from streams.engines.protocol import Floats
from streams.engines.shelf import Shelf
from streams.jobs.engines.address import EngineAddress
from streams.jobs.engines.chat import ChatEngine
from streams.jobs.engines.transcriptions import TranscriptionEngine
from streams.jobs.engines.translate import TranslationEngine
from streams.jobs.performer import Performer
from streams.jobs.sound import SoundPerformer
from streams.jobs.speech import SpeechPerformer
from streams.jobs.translation import TranslationPerformer
from streams.jobs.writing import CaptionPerformer, InsightsPerformer
from streams.probe.prober import Prober
from streams.voice.manifest import SpeakerManifest
from streams.voice.speaker import OnnxSpeakerEngine
from topics.jobs.options import Service

#: The models of the bundled engines.
BUNDLED: Final = {"speech": SPEECH_MODEL, "caption": CHAT_MODEL}
#: The bundled engine is slow: on a busy machine it would not get done with longer pieces in time.
BUNDLED_PIECE_SECONDS: Final = 15
SPEAKER_MODEL: Final = "speaker_mini"


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
        """See `streams.voice.speaker.SpeakerEngine`."""
        return self._engine().manifest

    def embed(self, samples: Floats) -> Floats:
        """See `streams.voice.speaker.SpeakerEngine`."""
        return self._engine().embed(samples)


class JobServices:
    """The performers of a node, with everything that is started and stopped for them."""

    def __init__(self, settings: Settings, shelf: Shelf) -> None:
        """Make the performers; a service whose engine is nowhere has none.

        Raises:
            OSError: the machine gives no port for the bundled engines.
        """
        self._settings = settings
        self.prober = Prober()
        self._bundled: EngineServer | None = None
        if settings.bundled_engines:
            self._bundled = EngineServer(settings.log_level, settings.log_format, settings.data / "engines")
            self._bundled.listen()
        self._performers: dict[
            Service, SoundPerformer | SpeechPerformer | InsightsPerformer | CaptionPerformer | TranslationPerformer
        ] = {Service.SOUND: SoundPerformer(shelf, settings.workers)}
        if transcribing := self._address("speech"):
            speakers = SpeakerModel(models.directory(SPEAKER_MODEL))
            pieces = settings.speech_piece_seconds
            if settings.speech_url is None:
                pieces = min(pieces, BUNDLED_PIECE_SECONDS)
            engine = TranscriptionEngine(transcribing)
            self._performers[Service.SPEECH] = SpeechPerformer(engine, speakers, piece_seconds=pieces)
        if writing := self._address("caption"):
            writer = ChatEngine(writing)
            self._performers[Service.INSIGHTS] = InsightsPerformer(writer, shelf.tags)
            self._performers[Service.CAPTION] = CaptionPerformer(writer, shelf.tags)
        if translating := self._address("translation"):
            self._performers[Service.TRANSLATION] = TranslationPerformer(TranslationEngine(translating))

    @property
    def performers(self) -> Mapping[Service, Performer]:
        """What runs each service."""
        return self._performers

    async def start(self) -> None:
        """Start the child processes; what needs them waits for them."""
        await self.prober.start()
        if self._bundled is not None:
            await self._bundled.start()

    async def stop(self) -> None:
        """End them, once nothing runs any more."""
        for performer in self._performers.values():
            await performer.close()
        await self.prober.stop()
        if self._bundled is not None:
            await self._bundled.stop()

    def _address(self, engine: str) -> EngineAddress | None:
        url: str | None = self._of(engine, "url")
        limit: int = self._of(engine, "concurrency")
        model: str | None = self._of(engine, "model")
        if url is None:
            if self._bundled is None:
                return None
            # More at a time than it has processes would only use up each other's deadline.
            url, limit, model = self._bundled.url, min(limit, workers.usual()), BUNDLED.get(engine)
        key: SecretStr | None = self._of(engine, "key")
        return EngineAddress(
            url=url,
            key=None if key is None else key.get_secret_value(),
            model=model,
            timeout_s=self._of(engine, "timeout"),
            limit=limit,
        )

    def _of(self, engine: str, setting: str) -> Any:
        return getattr(self._settings, f"{engine}_{setting}", None)
