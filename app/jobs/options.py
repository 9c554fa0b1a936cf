"""The fields of an analyze request; their faults become the details of a 422."""

from itertools import islice
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from app.http.bodies import SMALL_BODY
from app.http.errors import Invalid
from app.http.faults import NOT_JSON, Text, faults
from topics.errors import BadRequest
from topics.jobs import options
from topics.jobs.options import Options

T = TypeVar("T")

#: Longest field, in bytes of JSON.
FIELD_BYTES: Final = SMALL_BODY
PROMPT_CHARACTERS: Final = 16 * 1024
SPEECH_PROMPT_CHARACTERS: Final = 1000
#: A request can have as many faults as fields; the first ones are enough.
MAX_DETAILS: Final = 64

#: How many speakers a client may announce.
SpeakerCount = Annotated[int, msgspec.Meta(gt=0, lt=options.MOST_SPEAKERS + 1)]
#: `(?!
#: )` because `$` would allow a final line break.
Language = Annotated[str, Meta(pattern=r"^[A-Za-z-]{1,16}(?!\n)$")]


class RequestOptions(Options, frozen=True, array_like=False, forbid_unknown_fields=True):
    """The options of a job; null is allowed only if it is the default."""

    speech_model: Annotated[
        Annotated[str, Meta(min_length=1, max_length=128)] | None,
        Meta(description="A model of the speech engine that the deployment allows; by default the engine's own."),
    ] = None
    speech_lang: Annotated[
        Language, Meta(description=f"Language code of the speech; `{options.ANY_LANGUAGE}` lets the engine find it.")
    ] = options.ANY_LANGUAGE
    translation_target_lang: Annotated[Language, Meta(description="Language code of the translation.")] = "en"
    audio_insights_prompt: Annotated[
        Annotated[str, Meta(max_length=PROMPT_CHARACTERS)] | None, Meta(description="What the insights should look at.")
    ] = None
    speech_prompt: Annotated[
        Annotated[str, Meta(max_length=SPEECH_PROMPT_CHARACTERS)] | None,
        Meta(description="Names and terms that may be said, as hints for the speech engine."),
    ] = None
    min_speakers: Annotated[
        SpeakerCount | None, Meta(description="At least this many people speak; needs `speaker_diarization`.")
    ] = None
    max_speakers: Annotated[
        SpeakerCount | None, Meta(description="At most this many people speak; needs `speaker_diarization`.")
    ] = None


class AnalyzeFields(msgspec.Struct, frozen=True):
    """All fields of an analyze request in JSON."""

    #: A JSON number with or without a fraction of 0.
    samplerate: Annotated[float, Meta(gt=0, lt=2**31, multiple_of=1, description="Hz, a whole number.")]
    audio: Annotated[
        str,
        Meta(
            description="The recording as base64, in one line or several: a file of any container, or raw PCM if "
            "`content_type` says so. The names `audio_data` and `data` work too.",
            extra_json_schema={"contentEncoding": "base64", "format": "byte"},
        ),
    ]
    options: RequestOptions
    content_type: Annotated[
        Annotated[str, Meta(max_length=255)] | None,
        Meta(
            description="Only needed for raw PCM: `audio/x-raw; format=s16le`. Its rate is `samplerate`.",
            extra_json_schema={"format": "audio-content-type"},
        ),
    ] = None
    filename: Annotated[str | None, Meta(description="Repeated in the result.")] = None


def invalid(kind: str, message: str, *place: str) -> Invalid:
    """Return an `Invalid` with one detail, at this place of the body."""
    return Invalid([{"type": kind, "loc": ["body", *place], "msg": message}])


def check_length(text: Text, place: str) -> None:
    """Raise Invalid if a field is longer than `FIELD_BYTES`."""
    if len(text) > FIELD_BYTES:
        raise invalid("too_long", f"Longer than {FIELD_BYTES} bytes", place)


def decoded(schema: type[T], text: Text, *place: str) -> T:
    """Decode the JSON at `place` in a body.

    Raises:
        Invalid: it is not JSON, or does not match this schema.
    """
    try:
        return msgspec.json.decode(text, type=schema)
    except NOT_JSON:
        details = [
            {"type": fault.kind, "loc": ["body", *fault.place], "msg": fault.message}
            for fault in islice(faults(schema, text, place), MAX_DETAILS)
        ]
        raise Invalid(details) from None


def consistent_options(request: RequestOptions) -> Options:
    """Return the options if they are consistent.

    Raises:
        BadRequest: they are not; the message is the contract's.
    """
    result = Options(**msgspec.structs.asdict(request))
    if (fault := options.fault(result)) is not None:
        raise BadRequest(fault)
    return result
