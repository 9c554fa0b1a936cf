"""The speech models of an engine server, and the processes that run them."""

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from infra.engines import SPEECH_MODEL, SPEECH_MODELS
from infra.engines.admission import AdmissionLimit
from infra.engines.errors import UnknownModel
from infra.engines.speech import COMMAND, heap, workers
from infra.engines.speech.transcripts import RecognitionResult
from infra.engines.speech.worker_protocol import RecognitionRequest
from infra.engines.speech.workers import NotLoaded, Workers
from infra.extras import how_to_install
from infra.models import whisper_files
from topics.errors import BadRequest, EngineError

log = structlog.get_logger("infra.engines")

#: Recordings that a Whisper process has at a time: those in decoding, and the next ones.
TOGETHER: Final = 8
#: The one language of `topics.languages` that only larger Whisper models know.
UNKNOWN: Final = "yue"


class SpeechSettings(msgspec.Struct, frozen=True):
    """Settings of speech recognition."""

    #: The model for requests that name none.
    model: str = SPEECH_MODEL
    #: Threads of Whisper; None means one for each core, up to four.
    threads: int | None = None
    #: Pieces of up to 28 s that are decoded side by side.
    batch: int = 4
    #: How long an idle process keeps its model in memory.
    idle_s: float = workers.IDLE_S


def make_workers(model: str, settings: SpeechSettings) -> Workers:
    """Return the workers of a model; none runs yet."""
    threads = settings.threads or workers.default_threads()
    command = (*COMMAND, model, str(threads), str(settings.batch))
    return Workers(command, settings.idle_s, TOGETHER, environment=heap.KEPT_HEAP)


class SpeechModels:
    """Recognises speech with the model that a request names."""

    def __init__(
        self,
        settings: SpeechSettings,
        make: Callable[[str, SpeechSettings], Workers] = make_workers,
        check: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; `make` creates the workers of a model.

        `check` raises EngineError if a model cannot be used; by default it checks the model's files.
        """
        self._settings = settings
        self._make = make
        self._check = check or check_model
        #: Models whose files were right.
        self._checked: set[str] = set()
        self._pools: dict[str, Workers] = {}
        self.admission = AdmissionLimit(TOGETHER + workers.WAITING, "speech", workers.RETRY_S)

    @property
    def default(self) -> str:
        """The model for requests that name none."""
        return self._settings.model

    def fault(self, model: str) -> str | None:
        """Return why a model cannot be used, or None; it blocks while the files are checked, until they are right."""
        if model not in self._checked:
            try:
                self._check(model)
            except EngineError as error:
                return _report(model, error)
            self._checked.add(model)
        return None

    async def transcribe(self, model: str, request: RecognitionRequest) -> RecognitionResult:
        """Recognise a recording.

        Raises:
            AudioError: the recording cannot be decoded, or is too long.
            BadRequest: the model does not know the language, or cannot translate.
            EngineError: the model cannot be loaded; the message says why.
            Unavailable: the recogniser failed, died, or took too long.
            UnknownModel: there is no such model.
        """
        if model not in SPEECH_MODELS:
            served = " and ".join(map(repr, SPEECH_MODELS))
            raise UnknownModel(f"model: {model[:80]!r} is unknown; this endpoint serves {served}")
        _check_language(model, request)
        if request.likely == UNKNOWN:
            request = msgspec.structs.replace(request, likely=None)
        fault = await asyncio.to_thread(self.fault, model)
        if fault is None:
            try:
                return await self._pool(model).transcribe(request)
            except NotLoaded as error:
                # The next request tries again: memory or descriptors may have run out.
                fault = _report(model, error)
        raise EngineError(f"model: {model} cannot be loaded here: {fault}")

    async def close(self) -> None:
        """End all processes; waiting recordings fail with Unavailable."""
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, model: str) -> Workers:
        if model not in self._pools:
            self._pools[model] = self._make(model, self._settings)
        return self._pools[model]


def check_model(model: str) -> None:
    """Check the files of a Whisper model.

    Raises:
        EngineError: a file is missing or differs, or the runtime is not installed.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise EngineError(how_to_install("ctranslate2"))
    whisper_files.check(*whisper_files.find(model))


def _report(model: str, error: Exception) -> str:
    log.error("speech.unusable", model=model, error=str(error))
    return str(error)


def _check_language(model: str, request: RecognitionRequest) -> None:
    if model == SPEECH_MODEL:
        if request.language == UNKNOWN:
            raise BadRequest(f"language: {model} does not know {UNKNOWN}")
    elif request.language not in (None, "en"):
        raise BadRequest(f"language: {model} knows English only, not {request.language}")
    elif request.task == "translate":
        raise BadRequest(f"model: {model} cannot translate, {SPEECH_MODEL} can")
