"""Bodies of requests about sessions, and the audio in them."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec
import pybase64

from app.http.bodies import decode
from topics.errors import BadRequest, TooLarge

Sensitivity = Annotated[int, msgspec.Meta(ge=-2, le=2)]
#: JSON readers agree on integers up to here (RFC 8259, section 6).
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class CreateSession(msgspec.Struct, frozen=True):
    """Body of session creation, the union of the interface's generations; unknown fields are ignored."""

    content_type: str
    type: Literal["stream", "file"]
    total_size: Count | None = None
    default_sensitivity: Sensitivity | None = None
    tags_sensitivity: dict[str, Sensitivity] | None = None
    metadata: dict[str, str] | None = None
    metadatas: dict[str, str] | None = None
    window_hop: Literal["0.5s", "1s"] | None = None
    file_name: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    file_length: Annotated[float, msgspec.Meta(ge=0)] | None = None


class UpdateSession(msgspec.Struct, frozen=True):
    """Body of PATCH."""

    make_readonly: bool | None = None


class AudioChunk(msgspec.Struct, frozen=True):
    """Body of a chunk upload."""

    data: str


class PredictRequest(msgspec.Struct, frozen=True):
    """Body of predict: one window of audio."""

    data: str
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] | None = None


CREATE: Final = msgspec.json.Decoder(CreateSession)
UPDATE: Final = msgspec.json.Decoder(UpdateSession)
CHUNK: Final = msgspec.json.Decoder(AudioChunk)
PREDICT: Final = msgspec.json.Decoder(PredictRequest)
_SPACE: Final = b" \t\r\n"
_OPENING: Final = re.compile(rb'_*\{_*"data"_*:_*"'.replace(b"_", b"[%s]" % _SPACE))


def chunk_audio(body: bytes, limit: int) -> bytes:
    """Return the audio in the body of a chunk upload.

    Raises:
        BadRequest: not JSON, without base64 in `data`, or with nothing in that.
        TooLarge: more than `limit` bytes.
    """
    # What stands between `{"data":"` and `"}` needs no JSON reader if it is base64, which has no quotes and no escapes.
    opening, end = _OPENING.match(body), body.rfind(b'"')
    if opening is not None and opening.end() <= end and body[end + 1 :].strip(_SPACE) == b"}":
        try:
            return _bounded(pybase64.b64decode(memoryview(body)[opening.end() : end], validate=True), limit)
        except ValueError:
            pass
    return audio_bytes(decode(CHUNK, body).data, limit)


def audio_bytes(data: str, limit: int) -> bytes:
    """Decode base64 audio, which may be broken into lines.

    Raises:
        BadRequest: not base64, or nothing in it.
        TooLarge: more than `limit` bytes.
    """
    try:
        audio = pybase64.b64decode(data, validate=True)
    except ValueError:
        audio = _broken_into_lines(data)
    return _bounded(audio, limit)


def _bounded(audio: bytes, limit: int) -> bytes:
    if not audio:
        raise BadRequest("data: holds no audio")
    if len(audio) > limit:
        raise TooLarge(f"data: the chunk holds {len(audio)} bytes, at most {limit} are allowed")
    return audio


def _broken_into_lines(data: str) -> bytes:
    try:
        return pybase64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        raise BadRequest("data: not base64") from None
