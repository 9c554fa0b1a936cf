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
#: A request can have as many faults as fields; the first ones are enough.
MAX_DETAILS: Final = 64


class RequestOptions(Options, frozen=True, array_like=False, forbid_unknown_fields=True):
    """The options of a job; null is allowed only if it is the default."""


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


OPTIONS: Final = msgspec.json.Decoder(RequestOptions)


def invalid(kind: str, message: str, *place: str) -> Invalid:
    """Return an `Invalid` with one detail, at this place of the body."""
    return Invalid([{"type": kind, "loc": ["body", *place], "msg": message}])


def check_length(text: Text, place: str) -> None:
    """Raise Invalid if a field is longer than `FIELD_BYTES`."""
    if len(text) > FIELD_BYTES:
        raise invalid("too_long", f"Longer than {FIELD_BYTES} bytes", place)


def decoded(decoder: msgspec.json.Decoder[T], text: Text, *place: str) -> T:
    """Decode the JSON at `place` in a body.

    The decoder is made at import: msgspec 0.22 crashes if two threads decode a type for the first time.

    Raises:
        Invalid: it is not JSON, or does not match this schema.
    """
    try:
        return decoder.decode(text)
    except NOT_JSON:
        details = [
            {"type": fault.kind, "loc": ["body", *fault.place], "msg": fault.message}
            for fault in islice(faults(decoder.type, text, place), MAX_DETAILS)
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
