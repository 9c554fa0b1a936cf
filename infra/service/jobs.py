"""What works for jobs and speakers in this deployment: performers, engines, and the child processes beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import SecretStr

from infra.engines import CHAT_MODEL, SPEECH_MODEL, workers
from infra.engines.child import EngineServer
from infra.service.speakers import DIRECTORY, NoEngine, SpeakerModel, bundled_model
from infra.service.voices import FsspecVoices
from infra.settings import Settings
from streams.clients.address import EngineAddress
from streams.clients.chat import ChatClient
from streams.clients.embeddings import EmbeddingClient
from streams.clients.transcriptions import TranscriptionClient
from streams.clients.translations import TranslationClient
from streams.models.loaded_models import LoadedModels
from streams.probe.prober import Prober
from streams.services.performer import Performer
from streams.services.sound import SoundPerformer
from streams.services.speech import SpeechPerformer
from streams.services.translation import TranslationPerformer
from streams.services.writing import CaptionPerformer, InsightsPerformer
from streams.speakers.roster import Roster
from streams.speakers.service import SpeakerService
from streams.speakers.transcripts import Writer
from topics.jobs.options import Service

#: The models of the bundled engines.
BUNDLED: Final = {"speech": SPEECH_MODEL, "caption": CHAT_MODEL}
#: The bundled engine is slow: on a busy machine it would not get done with longer pieces in time.
BUNDLED_PIECE_SECONDS: Final = 15


class JobServices:
    """The performers of a node and its registered speakers, with everything that is started and stopped for them."""

    def __init__(self, settings: Settings, shelf: LoadedModels, roster: Roster) -> None:
        """Make the performers; a service whose engine is nowhere has none.

        Raises:
            OSError: the machine gives no port for the bundled engines.
            ServiceError: there is no such store for voice files.
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
        model = SpeakerModel(DIRECTORY)
        transcribing = self._address("speech")
        writer = None if transcribing is None else Writer(TranscriptionClient(transcribing), self._piece_seconds())
        self._voices = FsspecVoices(settings.voices_url or str(settings.data / "voices"))
        self.speakers = self._speakers(roster, model, writer)
        if writer is not None:
            self._performers[Service.SPEECH] = SpeechPerformer(
                writer.engine, model, voices=self.speakers.naming, piece_seconds=writer.piece_s
            )
        if writing := self._address("caption"):
            chat = ChatClient(writing)
            self._performers[Service.INSIGHTS] = InsightsPerformer(chat, shelf.tags)
            self._performers[Service.CAPTION] = CaptionPerformer(chat, shelf.tags)
        if translating := self._address("translation"):
            self._performers[Service.TRANSLATION] = TranslationPerformer(TranslationClient(translating))

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
        await self.speakers.close()
        self._voices.close()
        for performer in self._performers.values():
            await performer.close()
        await self.prober.stop()
        if self._bundled is not None:
            await self._bundled.stop()

    def _speakers(self, roster: Roster, model: SpeakerModel, writer: Writer | None) -> SpeakerService:
        settings, address = self._settings, self._address("speaker")
        return SpeakerService(
            roster,
            self._voices,
            self.prober,
            NoEngine() if address is None else EmbeddingClient(address),
            model,
            keep=settings.keep_voice,
            writer=writer,
            model=bundled_model() if address is not None and settings.speaker_url is None else None,
            threshold=settings.speaker_threshold,
        )

    def _piece_seconds(self) -> int:
        pieces = self._settings.speech_piece_seconds
        return pieces if self._settings.speech_url is not None else min(pieces, BUNDLED_PIECE_SECONDS)

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
