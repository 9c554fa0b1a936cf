"""Request bodies: bounded, decoded strictly, and rejected with the name of the faulty field."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from app.http.errors import ClientGone, TooLargeToRead, UnsupportedEncoding
from app.http.faults import BodyFault, faults, why_not_json
from topics.errors import BadRequest, TooLarge, Unavailable

T = TypeVar("T")

#: Longest body without audio, in bytes.
SMALL_BODY: Final = 64 * 1024
#: Longest body whose rest is discarded after an early answer, so that a client that writes before it reads gets the
#: answer. For a longer one, the connection is closed. Only recordings may be that long.
DISCARDED_BYTES: Final = 128 * 1024 * 1024
#: A project may hold this fraction of the memory for bodies, a session this fraction of its project's.
SHARES: Final = 4

#: Senders of a body, widest first: a project, then one of its sessions.
Senders = Sequence[str]
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
    """Bounds the memory for partly received bodies, in total and for each sender."""

    def __init__(self, limit: int) -> None:
        """Hold `limit` bytes in total; a project and a session each hold at most a share."""
        self.limit = limit
        self.used = 0
        self._by_sender: Counter[str] = Counter()

    def take(self, senders: Senders, size: int, longest: int) -> None:
        """Reserve memory for more of a body of at most `longest` bytes; every share has room for one such body.

        Raises:
            Unavailable: no memory is left.
        """
        if self.used + size > self.limit:
            raise Unavailable("arriving request bodies fill their memory; try again")
        share = self.limit
        for sender in senders:
            share = max(share // SHARES, longest)
            if self._by_sender[sender] + size > share:
                raise Unavailable("too many requests of this project are arriving")
        self.used += size
        for sender in senders:
            self._by_sender[sender] += size

    def give_back(self, senders: Senders, size: int) -> None:
        """Release `size` bytes."""
        self.used -= size
        for sender in senders:
            self._by_sender[sender] -= size
            if not self._by_sender[sender]:
                del self._by_sender[sender]


async def read_body(
    receive: Receive, content_length: bytes, limit: int, room: BodyQuota, senders: Senders = ("",)
) -> bytes:
    """Read a request body; reserve memory from its senders' shares while it arrives.

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
            room.take(senders, size - held, limit)
            held = size
    finally:
        if held:
            room.give_back(senders, held)


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
    except UnicodeDecodeError:
        raise BadRequest("body: not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"body: not JSON ({why_not_json(body, error)})") from None
