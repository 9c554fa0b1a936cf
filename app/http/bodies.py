"""Request bodies: bounded, decoded strictly, and rejected with the name of the faulty field."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from app.http.errors import ClientGone, TooLargeToRead, UnsupportedEncoding
from app.http.faults import NOT_JSON, BodyFault, faults, why_not_json
from app.http.long_texts import REST, without_long_texts
from topics.errors import BadRequest, TooLarge, Unavailable
from topics.turns import Holder

T = TypeVar("T")

#: Longest body without audio, in bytes.
SMALL_BODY: Final = 64 * 1024
#: Longest body whose rest is discarded after an early answer, so that a client that writes before it reads gets the
#: answer. For a longer one, the connection is closed. Only recordings may be that long.
DISCARDED_BYTES: Final = 128 * 1024 * 1024
#: An organization may hold this fraction of the memory for bodies, a project this one, and a session this one.
SHARES: Final = 2, 4, 16
NOBODY: Final = Holder("", "")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client has hung up; only for requests whose body was read or does not matter."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it if the client hangs up. The body must have been read.

    Raises:
        ClientGone: the client hung up.
    """
    working, disconnect = asyncio.create_task(work), asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        disconnect.cancel()
        working.cancel()
        await asyncio.gather(working, disconnect, return_exceptions=True)


def chunk_body(chunk_limit: int) -> int:
    """Return the bound of a body that carries `chunk_limit` bytes as base64, with escaped line breaks and slack."""
    return chunk_limit * 4 // 3 * 9 // 8 + SMALL_BODY


class BodyQuota:
    """Bounds the memory for partly received bodies, in total and for each holder."""

    def __init__(self, limit: int) -> None:
        """Hold `limit` bytes in total; an organization, a project and a session each hold at most a share."""
        self.limit = limit
        self.used = 0
        self._by_holder: Counter[tuple[str, ...]] = Counter()

    def take(self, holder: Holder, size: int, longest: int) -> None:
        """Reserve memory for more of a body of at most `longest` bytes; every share has room for one such body.

        Raises:
            Unavailable: no memory is left.
        """
        if self.used + size > self.limit:
            raise Unavailable("arriving request bodies fill their memory; try again")
        for names, share in zip(_levels(holder), SHARES, strict=False):
            if self._by_holder[names] + size > max(self.limit // share, longest):
                whom = "organization" if len(names) == 1 else "project"
                raise Unavailable(f"too many requests of this {whom} are arriving")
        self.used += size
        for names in _levels(holder):
            self._by_holder[names] += size

    def give_back(self, holder: Holder, size: int) -> None:
        """Release `size` bytes."""
        self.used -= size
        for names in _levels(holder):
            self._by_holder[names] -= size
            if not self._by_holder[names]:
                del self._by_holder[names]


def _levels(holder: Holder) -> list[tuple[str, ...]]:
    """Return the organization, the project in it, and the subject in that, if there is one."""
    return [holder[:names] for names in range(1, 4 if holder.subject else 3)]


async def read_body(
    receive: Receive, content_length: bytes, limit: int, room: BodyQuota, holder: Holder = NOBODY
) -> bytes:
    """Read a request body; reserve memory from its holder's shares while it arrives.

    Raises:
        TooLarge: longer than `limit` bytes, by its Content-Length or as it arrives.
        Unavailable: no memory is left now.
        ClientGone: the client hung up before the end.
    """
    check_length(content_length, limit)
    parts: list[bytes] = []
    size = held = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_long(limit)
            parts.append(part)
            if not message.get("more_body", False):
                return part if len(parts) == 1 else b"".join(parts)
            room.take(holder, size - held, limit)
            held = size
    finally:
        if held:
            room.give_back(holder, held)


def declared_length(content_length: bytes) -> int:
    """Return the length that Content-Length declares, or 0."""
    return int(content_length[:20]) if content_length.isdigit() else 0


async def body_pieces(receive: Receive, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield a request body as it arrives, without buffering it; of one longer than `limit` bytes, `limit` + 1.

    Raises:
        ClientGone: the client hung up before the end.
    """
    room, more = limit + 1, True
    while more and room:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part, more = message.get("body", b"")[:room], message.get("more_body", False)
        room -= len(part)
        yield part


def check_encoding(content_encoding: bytes) -> None:
    """Refuse a compressed body; the service decompresses nothing.

    Raises:
        UnsupportedEncoding: its Content-Encoding is not `identity`.
    """
    encoding = content_encoding.decode("latin-1").strip()[:64]
    if encoding.lower() not in ("", "identity"):
        raise UnsupportedEncoding(f"content-encoding: {encoding!r} is not supported, send the body as it is")


def check_length(content_length: bytes, limit: int) -> None:
    """Refuse a body whose Content-Length is too large.

    Raises:
        TooLarge: it is longer than `limit` bytes.
    """
    length = declared_length(content_length)
    if length > limit:
        raise too_long(limit, TooLargeToRead if length > DISCARDED_BYTES else TooLarge)


def too_long(limit: int, kind: type[TooLarge] = TooLargeToRead) -> TooLarge:
    """Return the error for a body longer than `limit` bytes."""
    return kind(f"the request body is longer than {limit} bytes")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a JSON body.

    Raises:
        BadRequest: not JSON, or a field is missing, of another type or out of bounds; names the field.
    """
    if not body:
        raise BadRequest("body: empty, JSON is required")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        fault = next(faults(decoder.type, body), BodyFault((), "value_error", str(error)))
        raise BadRequest(f"{'.'.join(fault.place) or 'body'}: {fault.message}") from None
    except NOT_JSON as error:
        raise _not_json(body, error) from None


def decode_long(decoder: msgspec.json.Decoder[T], body: bytes) -> tuple[T, Sequence[range]]:
    """Decode a JSON body with a mark in place of each long text; return it, and where the texts are in the body.

    Raises:
        BadRequest: as `decode`, or it is too long without these texts.
    """
    try:
        rest, texts = without_long_texts(body)
    except NOT_JSON as error:
        raise _not_json(body[:REST], error) from None
    return decode(decoder, rest), texts


def _not_json(body: bytes, error: Exception) -> BadRequest:
    if isinstance(error, UnicodeDecodeError):
        return BadRequest("body: not UTF-8")
    return BadRequest(f"body: not JSON ({why_not_json(body, error)})")
