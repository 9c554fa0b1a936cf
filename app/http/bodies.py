"""Request bodies: read within a bound, decoded strictly, and refused with the name of the field at fault."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import pybase64

from topics.errors import BadRequest, RequestError, TooLarge

T = TypeVar("T")

#: Bound of the bodies that carry no audio.
SMALL_BODY: Final = 64 * 1024
#: An oversized body up to this length is refused, then discarded as it arrives, so that a client that writes before it
#: reads sees the 413; past it the connection is closed.
DISCARDED: Final = 16 * 1024 * 1024

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(Exception):
    """The client hung up; nobody is there to be answered."""


class Flood(TooLarge):
    """The body is so long, or of such unknown length, that the connection has to be closed."""


class Stalled(RequestError):
    """The client stopped sending in the middle of its request; the connection is closed, as its rest may never come."""

    status_hint = 408


async def hung_up(receive: Receive) -> None:
    """Return when the client has hung up; for requests whose body was read or does not matter."""
    while (await receive())["type"] != "http.disconnect":
        pass


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


def chunk_body(chunk_limit: int) -> int:
    """Return the bound of a body that carries `chunk_limit` bytes: base64, escaped line breaks, and slack."""
    return chunk_limit * 4 // 3 * 9 // 8 + SMALL_BODY


async def read_body(receive: Receive, content_length: bytes, limit: int) -> bytes:
    """Read a request body.

    Raises:
        TooLarge: longer than `limit`; told from Content-Length alone where there is one.
        ClientGone: the client hung up in the middle.
    """
    length = int(content_length) if content_length.isdigit() else 0
    if length > limit:
        raise _too_large(limit, Flood if length > DISCARDED else TooLarge)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit, Flood)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int, error: type[TooLarge]) -> TooLarge:
    return error(f"the request body is longer than {limit} bytes")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a JSON body.

    Raises:
        BadRequest: not JSON, or a field that is missing, of another type or out of bounds; names the field.
    """
    if not body:
        raise BadRequest("body: empty, JSON is required")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(_explain(str(error))) from None
    except UnicodeDecodeError:
        raise BadRequest("body: not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"body: not JSON ({error})") from None


_AT: Final = re.compile(r"(?P<fault>.*) - at `(?:key in )?\$\.?(?P<field>[^`]*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`")


def _explain(message: str) -> str:
    if missing := _MISSING.fullmatch(message):
        return f"{missing['field']}: required"
    if at := _AT.fullmatch(message):
        return f"{at['field'] or 'body'}: {at['fault']}"
    return f"body: {message}"


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
