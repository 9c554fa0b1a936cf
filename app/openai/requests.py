"""Reads a transcription request from its form (https://platform.openai.com/docs/api-reference/audio).

Parameters without a meaning here are accepted and ignored: `temperature`, `chunking_strategy` and `include`. References
of known speakers are not read: a known speaker is a registered voice.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from app.http.call import Call
from app.http.multipart import Form
from app.http.uploads import UploadSpool
from app.jobs.job_context import JobContext
from app.jobs.options import RequestOptions, consistent_options
from app.jobs.requests import JobRequest
from app.openai.errors import ParameterError, UnknownModel
from topics import languages
from topics.jobs.options import ANY_LANGUAGE

E = TypeVar("E", bound=StrEnum)

#: Means the deployment's own model.
OWN_MODEL: Final = "whisper-1"
#: Values of `language` that make the engine detect it.
FOUND: Final = frozenset({"auto", ANY_LANGUAGE})
#: Most registered speakers of an organization.
MAX_NAMES: Final = 50
_NUMBER: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,18})?")


class Task(StrEnum):
    """Which answer the client wants."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class Format(StrEnum):
    """Forms of an answer."""

    JSON = "json"
    TEXT = "text"
    SRT = "srt"
    VTT = "vtt"
    VERBOSE = "verbose_json"
    DIARIZED = "diarized_json"


class Granularity(StrEnum):
    """Parts that have times in a verbose answer."""

    WORD = "word"
    SEGMENT = "segment"


class SpeechRequest(msgspec.Struct, frozen=True):
    """A request without its audio."""

    task: Task
    format: Format
    #: A model's name; None for the deployment's own model.
    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    granularities: frozenset[Granularity] = frozenset({Granularity.SEGMENT})
    stream: bool = False
    temperature: float = 0.0
    #: Registered speakers to name in the answer.
    names: tuple[str, ...] = ()

    def job_options(self) -> dict[str, Any]:
        """Return the options of the job, as a client of the job interface would write them."""
        options: dict[str, Any] = {
            "speech_analysis": True,
            "speaker_diarization": self.format is Format.DIARIZED,
            "speaker_profile": bool(self.names),
            "translation": self.task is Task.TRANSLATE,
            "word_times": self.format is Format.VERBOSE and Granularity.WORD in self.granularities,
        }
        given = {option: getattr(self, parameter) for option, parameter in _PARAMETERS.items()}
        return options | {option: value for option, value in given.items() if value is not None}


#: Job options and the parameters that set them.
_PARAMETERS: Final = {"speech_model": "model", "speech_lang": "language", "speech_prompt": "prompt"}
_FIELDS: Final = (
    "model",
    "language",
    "prompt",
    "response_format",
    "temperature",
    "stream",
    "timestamp_granularities[]",
    "timestamp_granularities",
    *(f"{name}{end}" for name in ("known_speaker_names", "keywords", "languages") for end in ("[]", "")),
)
#: Recordings of speakers, as data URLs, which are ignored.
_UNREAD: Final = ("known_speaker_references[]", "known_speaker_references")


class SpeechForm:
    """Parses the form of one request as it arrives."""

    def __init__(
        self, task: Task, models: Collection[str], check_names: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        """Read a request for `task`; `models` are allowed, and `check_names` is awaited with the names of speakers."""
        self._task = task
        self._models = models
        self._check_names = check_names
        #: Final once the form was read.
        self.request = SpeechRequest(task, Format.JSON)

    async def read(self, call: Call, context: JobContext, limit: int, audio: UploadSpool) -> JobRequest:
        """Read a form of at most `limit` bytes, and write its recording to `audio`.

        Raises:
            BadRequest, ParameterError, UnknownModel: it is not a form, or a part is missing or wrong.
            TooLarge, RequestTimeout, ClientGone: the body cannot be read.
        """
        form = Form(call.header(b"content-type"), "file", audio.write, fields=_FIELDS, unread=_UNREAD)
        await context.uploads.receive(call, limit, form.feed)
        form.close()
        if "file" not in form.seen:
            raise ParameterError("file", "a file is required")
        self.request = read_fields(self._task, form.values, self._models)
        await self._check_names(self.request.names)
        try:
            options = consistent_options(msgspec.convert(self.request.job_options(), RequestOptions))
        except msgspec.ValidationError as error:
            parameter = next((each for option, each in _PARAMETERS.items() if option in str(error)), "options")
            raise ParameterError(parameter, f"{parameter} is not valid") from None
        # Detect the format by content, because clients send recordings with all kinds of types.
        return JobRequest(options, form.content_type, None, form.filename)


def read_fields(task: Task, values: Callable[[str], list[str]], models: Collection[str]) -> SpeechRequest:
    """Return the request in the fields of a form; `values` returns the values of a field.

    Raises:
        ParameterError, UnknownModel: a field is missing or wrong; names it.
    """

    def single(name: str, default: str = "") -> str:
        found = values(name)
        if len(found) > 1:
            raise ParameterError(name, f"{name} appears twice")
        return found[0].strip() if found and found[0].strip() else default

    def several(name: str) -> list[str]:
        return [*values(f"{name}[]"), *values(name)]

    model = single("model")
    if not model:
        raise ParameterError("model", f"a model is required: {OWN_MODEL}, or one of /v1/models")
    if model != OWN_MODEL and model not in models:
        raise UnknownModel(f"the model {model[:128]!r} does not exist here; {OWN_MODEL} always does")
    form = _one_of(Format, "response_format", single("response_format", Format.JSON))
    if task is Task.TRANSLATE and form is Format.DIARIZED:
        raise ParameterError("response_format", "diarized_json is for transcriptions")
    granularities = [
        _one_of(Granularity, "timestamp_granularities", value) for value in several("timestamp_granularities")
    ]
    names = tuple(dict.fromkeys(several("known_speaker_names")))
    if len(names) > MAX_NAMES:
        raise ParameterError("known_speaker_names", f"at most {MAX_NAMES} speakers can be known")
    if names and form is not Format.DIARIZED:
        raise ParameterError("known_speaker_names", "known_speaker_names needs the response_format diarized_json")
    # A single possible language is the language; among several the engine chooses.
    possible = several("languages")
    language = single("language") or (possible[0] if len(possible) == 1 else "")
    if language and language.lower() not in FOUND and languages.code(language) is None:
        raise ParameterError("language", f"language must be a code such as en or pt-BR, not {language[:40]!r}")
    return SpeechRequest(
        task,
        form,
        None if model == OWN_MODEL else model,
        language or None,
        ", ".join(filter(None, (single("prompt"), *several("keywords")))) or None,
        frozenset(granularities or (Granularity.SEGMENT,)),
        task is Task.TRANSCRIBE and _flag("stream", single("stream", "false")),
        _temperature(single("temperature", "0")),
        names,
    )


def _one_of(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise ParameterError(name, f"{name} must be one of {', '.join(kind)}, not {value[:40]!r}") from None


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise ParameterError(name, f"{name} must be true or false")
    return value.lower() in ("true", "1")


def _temperature(value: str) -> float:
    if not _NUMBER.fullmatch(value) or float(value) > 1:
        raise ParameterError("temperature", "temperature must be a number from 0 to 1")
    return float(value)
