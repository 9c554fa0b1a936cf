"""Builds the services of jobs and the registered speakers, with their engines and child processes."""

from collections.abc import Mapping
from typing import Final, TypeVar

from infra.engine_settings import ChosenEngine
from infra.engines import CHAT_MODEL, SPEECH_MODEL
from infra.engines.child import EngineServer
from infra.engines.speech import workers
from infra.engines.speech.speech_models import TOGETHER
from infra.errors import naming, variable
from infra.service.bundled_engines import bundled_engines, speech_settings
from infra.service.speakers import DIRECTORY, OVERLAP_DIRECTORY, NoEngine, OverlapModel, SpeakerModel, bundled_model
from infra.service.voices import FsspecVoices
from infra.settings import Settings
from streams.clients.address import EngineAddress
from streams.clients.chat import ChatClient
from streams.clients.client import EngineClient
from streams.clients.embeddings import EmbeddingClient
from streams.clients.restarts import Restarts
from streams.clients.transcriptions import SpeechTranslationClient, TranscriptionClient
from streams.clients.translations import TranslationClient
from streams.models.loaded_models import LoadedModels
from streams.services.descriptions import TASKS
from streams.services.priority import NICE
from streams.services.prompting import ChatService
from streams.services.service import JobService
from streams.services.sound import SoundService
from streams.services.speech import SpeechService
from streams.services.speech_translation import SpeechTranslationService
from streams.services.translation import TranslationService
from streams.speakers.registered_speakers import SpeakerService
from streams.speakers.speaker_store import SpeakerStore
from streams.speakers.transcriber import Transcriber
from streams.workers.decoded_file import FileDecoder
from streams.workers.prober import RecordingProber
from streams.workers.workers import Workers
from topics.jobs.options import DEFAULT_SPEECH_MODEL, Service

#: The bundled engine takes 28 s at a time; longer pieces would only wait for their second half.
BUNDLED_PIECE_SECONDS: Final = 28
#: The error for languages that the bundled engine cannot translate into.
NEEDED: Final = f"{variable('translation_url')} is not set, the address of a LibreTranslate server"


Engine = TypeVar("Engine", bound=EngineClient)

AnyService = SoundService | SpeechService | ChatService | TranslationService | SpeechTranslationService


class JobServices:
    """The job services and registered speakers of a node; starts and stops their engines."""

    def __init__(
        self,
        settings: Settings,
        models: LoadedModels,
        store: SpeakerStore,
        workers: Workers,
        engines: tuple[str, str] | None = None,
    ) -> None:
        """Make the services; those without an engine are missing. `workers` read and score recordings.

        `engines` are the address and key of bundled engines that another process keeps running.

        Raises:
            OSError: there is no free port for the bundled engines.
            WrongSetting: the store for voice files is not supported, or the bundled engine lacks a model.
        """
        self._settings = settings
        #: The engines in use, for the operator's view.
        self.engines: list[EngineClient] = []
        self._workers = workers
        self._decoder = FileDecoder(workers)
        #: Opens recordings of jobs, which have a lower priority.
        self.open_file = FileDecoder(workers, NICE).open_file
        self.prober = RecordingProber(self._decoder.open_file)
        #: Address and key of the bundled engines, and the process, if it is ours.
        self._bundled = engines
        self._server: EngineServer | None = None
        self._restarts = Restarts()
        if settings.bundled_engines and engines is None:
            self._server = bundled_engines(settings)
            self._bundled = self._server.url, self._server.key
        with naming("voices_url", settings.voices_url):
            self._voices = FsspecVoices(settings.voices_url or str(settings.data / "voices"))
        voices = SpeakerModel(DIRECTORY)
        transcriber = self._transcriber()
        self.speakers = self._speakers(store, voices, transcriber)
        self._services = self._make_services(models, voices, transcriber)

    @property
    def services(self) -> Mapping[Service, JobService]:
        return self._services

    @property
    def speech_models(self) -> frozenset[str]:
        """The speech models that a job may name: the engine's own, and those that the operator allows."""
        own = self._speech_address()
        named = {DEFAULT_SPEECH_MODEL} if own is None or own.model is None else {DEFAULT_SPEECH_MODEL, own.model}
        return self._settings.allowed_speech_models | named

    @property
    def bundled_speech(self) -> str | None:
        """The bundled engine's speech model; None if that engine is not used."""
        used = self._bundled is not None and self._settings.speech_url is None
        return speech_settings(self._settings).model if used else None

    async def start(self) -> None:
        """Start the engines; services wait for them."""
        if self._server is not None:
            await self._server.start()

    async def stop(self) -> None:
        """Stop the engines; call it once no service runs."""
        await self.speakers.close()
        self._voices.close()
        for service in self._services.values():
            await service.close()
        await self.prober.close()
        if self._server is not None:
            await self._server.stop()

    def _make_services(
        self, models: LoadedModels, voices: SpeakerModel, transcriber: Transcriber | None
    ) -> dict[Service, AnyService]:
        settings = self._settings
        services: dict[Service, AnyService] = {Service.SOUND: SoundService(models, self._workers)}
        if transcriber is not None:
            services[Service.SPEECH] = SpeechService(
                transcriber.engine,
                voices,
                self.open_file,
                names=self.speakers.identification,
                overlap=OverlapModel(OVERLAP_DIRECTORY),
                piece_seconds=transcriber.piece_s,
                takes_likely_language=settings.speech_url is None,
            )
        if writing := self._address(settings.engine("caption"), CHAT_MODEL):
            chat = self._noted(ChatClient(writing))
            for task in TASKS:
                services[task.service] = ChatService(task, chat, models.tags)
        services[Service.TRANSLATION] = self._translation()
        return services

    def _translation(self) -> TranslationService | SpeechTranslationService:
        """Return the translation service: the configured engine, or into English the bundled speech engine."""
        settings = self._settings
        if settings.translation_url is not None:
            return TranslationService(self._noted(TranslationClient(self._elsewhere(settings.engine("translation")))))
        hearing = None
        if self._bundled is not None:
            limit = min(settings.speech_concurrency, TOGETHER)
            address = self._here(self._bundled, SPEECH_MODEL, settings.speech_timeout * limit, limit)
            hearing = self._noted(SpeechTranslationClient(address))
        return SpeechTranslationService(hearing, self.open_file, BUNDLED_PIECE_SECONDS, NEEDED)

    def _speech_address(self) -> EngineAddress | None:
        return self._address(self._settings.engine("speech"), self._settings.speech_model or SPEECH_MODEL, TOGETHER)

    def _transcriber(self) -> Transcriber | None:
        address, piece_s = self._speech_address(), self._settings.speech_piece_seconds
        if address is None:
            return None
        if self._settings.speech_url is None:
            piece_s = min(piece_s, BUNDLED_PIECE_SECONDS)
        return Transcriber(self._noted(TranscriptionClient(address)), piece_s)

    def _speakers(self, store: SpeakerStore, voices: SpeakerModel, transcriber: Transcriber | None) -> SpeakerService:
        settings, address = self._settings, self._address(self._settings.engine("speaker"))
        return SpeakerService(
            store,
            self._voices,
            self.prober,
            self._decoder.open_file,
            NoEngine() if address is None else self._noted(EmbeddingClient(address)),
            voices,
            keep=settings.keep_voice,
            transcriber=transcriber,
            model=bundled_model() if address is not None and settings.speaker_url is None else None,
            threshold=settings.speaker_threshold,
        )

    def _noted(self, engine: Engine) -> Engine:
        self.engines.append(engine)
        return engine

    def _address(
        self, engine: ChosenEngine, bundled: str | None = None, most: int | None = None
    ) -> EngineAddress | None:
        """Return the address of an engine, or None if there is none.

        For the bundled engine, `bundled` is the model and `most` the calls that it works on together, each in the time
        of all; more would miss their deadlines.
        """
        if engine.url is not None:
            return self._elsewhere(engine)
        if self._bundled is None:
            return None
        limit = min(engine.concurrency, most or workers.default_threads())
        return self._here(self._bundled, bundled, engine.timeout * (limit if most else 1), limit)

    def _here(self, server: tuple[str, str], model: str | None, timeout_s: float, limit: int) -> EngineAddress:
        url, key = server
        return EngineAddress(url=url, key=key, model=model, timeout_s=timeout_s, limit=limit, restarts=self._restarts)

    def _elsewhere(self, engine: ChosenEngine) -> EngineAddress:
        assert engine.url is not None
        key = None if engine.key is None else engine.key.get_secret_value()
        return EngineAddress(
            url=engine.url, key=key, model=engine.model, timeout_s=engine.timeout, limit=engine.concurrency
        )
