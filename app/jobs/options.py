"""The JSON of an analyze request, judged field by field: what is wrong becomes the details of a 422."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.http.bodies import SMALL_BODY
from app.http.errors import Invalid
from topics.errors import BadRequest
from topics.jobs import options
from topics.jobs.options import Options

#: Bytes of the options as JSON.
OPTIONS_BYTES: Final = SMALL_BODY
PROMPT_CHARACTERS: Final = 16 * 1024
#: A request can have as many faults as it has fields; the first ones will do.
MOST_DETAILS: Final = 64
#: Built with the first request: that takes a tenth of a second, which a start need not wait for.
_STRICT: Final = ConfigDict(extra="forbid", strict=True, defer_build=True)

Language = Annotated[str, Field(pattern=r"^[A-Za-z-]{1,16}$")]


class JobOptions(BaseModel):
    """`topics.jobs.options.Options` as a client writes it; null where None is the default."""

    model_config = _STRICT

    sound_event_detection: bool = False
    speech_analysis: bool = False
    audio_insights: bool = False
    caption: bool = False
    speaker_profile: bool = False
    translation: bool = False
    speaker_diarization: bool | None = None
    speech_model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    speech_lang: Language = "multi"
    translation_target_lang: Language = "en"
    audio_insights_prompt: Annotated[str, Field(max_length=PROMPT_CHARACTERS)] | None = None


def _whole(value: object) -> object:
    """16000.0 is a whole number in JSON, which knows no other kind."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class AnalyzeFields(BaseModel):
    """Everything of an analyze request but its audio, of which only the type is judged here."""

    model_config = ConfigDict(strict=True, defer_build=True)

    samplerate: Annotated[int, BeforeValidator(_whole), Field(gt=0, lt=2**31)]
    audio: str
    options: JobOptions
    content_type: Annotated[str, Field(max_length=255)] | None = None
    filename: str | None = None


_OPTIONS: Final = TypeAdapter(JobOptions)
_FIELDS: Final = TypeAdapter(AnalyzeFields)


def invalid(kind: str, message: str, *place: str) -> Invalid:
    """Return an `Invalid` with one detail, at `body` and the given place in it."""
    return Invalid([{"type": kind, "loc": ["body", *place], "msg": message}])


def too_long(place: str) -> Invalid:
    """Return the `Invalid` of a field that is longer than `OPTIONS_BYTES`."""
    return invalid("too_long", f"Longer than {OPTIONS_BYTES} bytes", place)


def parse(text: bytes | memoryview, place: str) -> object:
    """Read the JSON of the field at `place`, such as the options.

    Raises:
        Invalid: too long, or not JSON.
    """
    if len(text) > OPTIONS_BYTES:
        raise too_long(place)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid("json_invalid", f"JSON decode error: {error}", place) from None


def read_options(content: object) -> Options:
    """Judge the options of a form.

    Raises:
        Invalid: a key that is unknown, or a value of another type.
        BadRequest: options that do not fit together.
    """
    try:
        return agreed(_OPTIONS.validate_python(content))
    except ValidationError as error:
        raise _invalid(error, "options") from None


def read_fields(content: dict[str, object]) -> AnalyzeFields:
    """Judge the fields of an analyze request; Invalid as `read_options`."""
    try:
        return _FIELDS.validate_python(content)
    except ValidationError as error:
        raise _invalid(error) from None


def agreed(chosen: JobOptions) -> Options:
    """Return options that fit together.

    Raises:
        BadRequest: they do not; the message is the contract's.
    """
    wanted = Options(**chosen.model_dump())
    if (fault := options.fault(wanted)) is not None:
        raise BadRequest(fault)
    return wanted


def _invalid(error: ValidationError, *place: str) -> Invalid:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return Invalid([_detail(detail, place) for detail in details[:MOST_DETAILS]])


def _detail(detail: ErrorDetails, place: tuple[str, ...]) -> dict[str, Any]:
    return {"type": detail["type"], "loc": ["body", *place, *detail["loc"]], "msg": detail["msg"]}
