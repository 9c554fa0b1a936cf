"""The fields of an analyze request: what is wrong with them becomes the details of a 422."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final, TypeVar

import msgspec

from app.http.bodies import SMALL_BODY
from app.http.errors import Invalid
from app.http.faults import NOT_JSON, Text, faults
from topics.errors import BadRequest
from topics.jobs import options
from topics.jobs.options import Options

T = TypeVar("T")

#: Bytes of one field as JSON.
FIELD_BYTES: Final = SMALL_BODY
PROMPT_CHARACTERS: Final = 16 * 1024
#: A request can have as many faults as it has fields; the first ones will do.
MAX_DETAILS: Final = 64

#: The end is not before a line break, as `$` would allow.
Language = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z-]{1,16}(?!\n)$")]


class RequestOptions(Options, frozen=True, array_like=False, forbid_unknown_fields=True):
    """The options as a client writes them: an object, whose texts have bounds; null where None is the default."""

    speech_model: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    speech_lang: Language = options.ANY_LANGUAGE
    translation_target_lang: Language = "en"
    audio_insights_prompt: Annotated[str, msgspec.Meta(max_length=PROMPT_CHARACTERS)] | None = None


class AnalyzeFields(msgspec.Struct, frozen=True):
    """Everything of an analyze request in JSON but its audio, of which only the type is checked here."""

    #: Hz; a whole number, in JSON with a fraction of 0 or without.
    samplerate: Annotated[float, msgspec.Meta(gt=0, lt=2**31, multiple_of=1)]
    audio: str
    options: RequestOptions
    content_type: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    filename: str | None = None


def invalid(kind: str, message: str, *place: str) -> Invalid:
    """Return an `Invalid` with one detail, at this place of the body."""
    return Invalid([{"type": kind, "loc": ["body", *place], "msg": message}])


def check_length(text: Text, place: str) -> None:
    """Raise Invalid where a field is longer than `FIELD_BYTES`."""
    if len(text) > FIELD_BYTES:
        raise invalid("too_long", f"Longer than {FIELD_BYTES} bytes", place)


def decoded(schema: type[T], text: Text, *place: str) -> T:
    """Return the JSON at `place` in a body, decoded.

    Raises:
        Invalid: it is not JSON, or not of this schema.
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
    """Return options that fit together.

    Raises:
        BadRequest: they do not; the message is the contract's.
    """
    result = Options(**msgspec.structs.asdict(request))
    if (fault := options.fault(result)) is not None:
        raise BadRequest(fault)
    return result
