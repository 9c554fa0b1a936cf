"""Request bodies of the session interface, and the audio in them."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
import pybase64
from msgspec import Meta

from app.http.bodies import decode_long
from app.http.descriptions import Parameter
from app.http.long_texts import REST, base64_pieces
from app.http.turns import LongWork
from topics.choices import SoundRule
from topics.errors import BadRequest, TooLarge
from topics.turns import Holder

Sensitivity = Annotated[int, Meta(ge=-2, le=2)]
#: All JSON readers agree on integers up to here (RFC 8259, section 6).
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Base64 = Annotated[
    str,
    Meta(
        description="Audio as base64, in one line or broken into several.",
        extra_json_schema={"contentEncoding": "base64", "format": "byte", "minLength": 1},
    ),
]


class CreateSession(msgspec.Struct, frozen=True):
    """Body of session creation, the union of the interface's generations; unknown fields are ignored."""

    content_type: Annotated[
        str,
        Meta(
            description="Of the audio: `audio/<container>`, or `audio/x-raw; rate=<Hz>; format=<format>` with an "
            "optional `; channels=<n>` for PCM without a header.",
            max_length=255,
            extra_json_schema={"format": "audio-content-type"},
        ),
    ]
    type: Annotated[
        Literal["stream", "file"],
        Meta(description="A stream is analysed as it comes, a file as a whole once it is complete."),
    ]
    total_size: Annotated[
        Count | None, Meta(description="Bytes of audio after which the session becomes `readonly`.")
    ] = None
    default_sensitivity: Annotated[
        Sensitivity | None, Meta(description="How readily sounds are reported, from -2 (the most) to 2 (the fewest).")
    ] = None
    tags_sensitivity: Annotated[
        dict[str, Sensitivity] | None, Meta(description="The same for single sounds, by name.")
    ] = None
    metadata: Annotated[dict[str, str] | None, Meta(description="The client's own notes.")] = None
    metadatas: Annotated[dict[str, str] | None, Meta(description="Earlier name of `metadata`.")] = None
    window_hop: Annotated[
        Literal["0.5s", "1s"] | None, Meta(description="Time from the start of one window to the next.")
    ] = None
    file_name: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        Meta(description="Of the file, or of the stream, for people: lists and the dashboard show it."),
    ] = None
    file_length: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="Of a file in seconds, if the client knows it.")
    ] = None
    model: Annotated[
        Annotated[str, Meta(max_length=128)] | None,
        Meta(description="Sound model by name, one of those that come with the service; by default the one in use."),
    ] = None
    sound_rule: Annotated[SoundRule | None, Meta(description="When a sound is on.")] = None
    sound_rules: Annotated[dict[str, SoundRule] | None, Meta(description="The same for single sounds, by name.")] = None


class UpdateSession(msgspec.Struct, frozen=True):
    """Body of a change of a session."""

    make_readonly: Annotated[
        bool | None, Meta(description="True ends the upload; the session never becomes writable again.")
    ] = None
    sound_rule: Annotated[
        SoundRule | None,
        Meta(description="When a sound is on, for windows not analysed yet; earlier events stay."),
    ] = None
    sound_rules: Annotated[
        dict[str, SoundRule] | None,
        Meta(description="The same for single sounds, by name; replaces all their earlier rules."),
    ] = None
    file_name: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        Meta(description="A new name, for people; later windows and alarms have it."),
    ] = None
    metadata: Annotated[dict[str, str] | None, Meta(description="Replaces the client's own notes.")] = None


class AudioBody(Protocol):
    @property
    def data(self) -> str: ...


B = TypeVar("B", bound=AudioBody)


class AudioChunk(msgspec.Struct, frozen=True):
    """Body of a chunk upload; unknown fields are ignored."""

    data: Base64


class PredictRequest(msgspec.Struct, frozen=True):
    """Body of predict: one window of audio."""

    data: Base64
    sequence: Annotated[
        Annotated[int, Meta(ge=0, le=2**53 - 1)] | None,
        Meta(description="Number of the window, from 0; by default the next one."),
    ] = None


CREATE: Final = msgspec.json.Decoder(CreateSession)
UPDATE: Final = msgspec.json.Decoder(UpdateSession)
CHUNK: Final = msgspec.json.Decoder(AudioChunk)
PREDICT: Final = msgspec.json.Decoder(PredictRequest)
_SPACE: Final = b" \t\r\n"
_OPENING: Final = re.compile(rb'_*\{_*"data"_*:_*"'.replace(b"_", b"[%s]" % _SPACE))


def chunk_audio(body: bytes, limit: int) -> bytes:
    """Return the audio in the body of a chunk upload.

    Raises:
        BadRequest: not JSON, or `data` has no base64 or is empty.
        TooLarge: more than `limit` bytes.
    """
    return quick_audio(body, limit) or decoded_audio(CHUNK, body, limit)[1]


def quick_audio(body: bytes, limit: int) -> bytes | None:
    """Return the audio in the body of a chunk upload, or None if that takes a decoder of JSON.

    Raises:
        BadRequest, TooLarge: as `chunk_audio`.
    """
    # The text between `{"data":"` and `"}` needs no JSON parser if it is base64, which has no quotes or escapes.
    opening, end = _OPENING.match(body), body.rfind(b'"')
    if opening is not None and opening.end() <= end and body[end + 1 :].strip(_SPACE) == b"}":
        try:
            return _bounded(pybase64.b64decode(memoryview(body)[opening.end() : end], validate=True), limit)
        except ValueError:
            pass
    return None


def decoded_audio(decoder: msgspec.json.Decoder[B], body: bytes, limit: int) -> tuple[B, bytes]:
    """Return a body, whose `data` is not decoded, and the audio in it, which may be broken into lines.

    Raises:
        BadRequest, TooLarge: as `chunk_audio`.
    """
    rest, texts = decode_long(decoder, body)
    return rest, audio_bytes(rest.data, limit, body, texts)


async def read_audio(
    decoding: LongWork, holder: Holder, decoder: msgspec.json.Decoder[B], body: bytes, limit: int
) -> tuple[B, bytes]:
    """Do as `decoded_audio`; for a long body, wait for the holder's turn and do it in a thread."""
    if len(body) <= REST:
        return decoded_audio(decoder, body, limit)
    async with decoding.place(holder):
        return await asyncio.to_thread(decoded_audio, decoder, body, limit)


def audio_bytes(data: str, limit: int, body: bytes = b"", texts: Sequence[range] = ()) -> bytes:
    """Decode base64 audio, which may be broken into lines; `data` may stand for a long text of a body.

    Raises:
        BadRequest: not base64, or empty.
        TooLarge: more than `limit` bytes.
    """
    try:
        return _bounded(b"".join(base64_pieces(body, data, texts)), limit)
    except (msgspec.DecodeError, ValueError):
        raise BadRequest("data: not base64") from None


def _bounded(audio: bytes, limit: int) -> bytes:
    if not audio:
        raise BadRequest("data: holds no audio")
    if len(audio) > limit:
        raise TooLarge(f"data: the chunk holds {len(audio)} bytes, at most {limit} are allowed")
    return audio


#: Fields of CreateSession that are JSON in a query.
_JSON_FIELDS: Final = ("metadata", "metadatas", "tags_sensitivity", "sound_rule", "sound_rules")
#: An example of a content type.
RAW: Final = "audio/x-raw; rate=16000; format=s16le"


def creation_parameters() -> tuple[Parameter, ...]:
    fields = []
    for field in msgspec.structs.fields(CreateSession):
        kind: Any = str if field.name in _JSON_FIELDS else field.type
        text = field.type.__metadata__[0].description if hasattr(field.type, "__metadata__") else field.name
        if field.name in _JSON_FIELDS:
            text += " As JSON."
        required = field.name == "content_type"
        example = RAW if required else None
        if field.name == "type":
            kind, text = Literal["stream"], "Always `stream`."
        fields.append(Parameter(field.name, "query", kind, text, required=required, example=example))
    return tuple(fields)
