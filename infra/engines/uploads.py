"""Reads request bodies, and forms with a recording, of bounded size and time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from app.http.bodies import SHARES, BodyQuota, read_body
from app.http.errors import ClientGone
from topics.errors import BadRequest, TooLarge, Unavailable

#: Room for ten minutes of stereo at 48 kHz and 16 bit.
MOST_BYTES: Final = 128 * 1024 * 1024
UPLOAD_S: Final = 60.0
_ROOM: Final = BodyQuota(SHARES[1] * MOST_BYTES)


async def body(request: Request, most: int) -> bytes:
    """Read a body of at most `most` bytes.

    Raises:
        BadRequest: it did not arrive in time.
        TooLarge: it is longer.
        Unavailable: the client hung up.
    """
    length = request.headers.get("content-length", "").encode()
    try:
        async with asyncio.timeout(UPLOAD_S):
            return await read_body(request.receive, length, most, _ROOM)
    except ClientGone:
        raise Unavailable("the client hung up") from None
    except TimeoutError:
        raise _too_slow() from None


@contextlib.asynccontextmanager
async def form(request: Request) -> AsyncIterator[tuple[FormData, BinaryIO]]:
    """Read a form; yield it and its part `file`, in memory up to 1 MiB and in a temporary file beyond.

    Raises:
        TooLarge: it is too long.
        BadRequest: it has no recording, or did not arrive whole and in time.
        HTTPException: it is not a form.
    """
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MOST_BYTES:
        raise _too_long()
    try:
        async with asyncio.timeout(UPLOAD_S):
            read = await Request(request.scope, _bounded(request.receive)).form(max_files=1, max_fields=32)
    except ClientDisconnect:
        raise BadRequest("the client hung up") from None
    except TimeoutError:
        raise _too_slow() from None
    try:
        upload = read.get("file")
        if not isinstance(upload, UploadFile):
            raise BadRequest("file: required, a recording as multipart/form-data")
        yield read, upload.file
    finally:
        await read.close()


def _too_long() -> TooLarge:
    return TooLarge(f"the request is longer than {MOST_BYTES} bytes")


def _too_slow() -> BadRequest:
    return BadRequest(f"the request did not arrive within {UPLOAD_S:g} s")


def _bounded(receive: Receive) -> Receive:
    """Return a `receive` that raises TooLarge once the body exceeds MOST_BYTES."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BYTES:
            raise _too_long()
        return message

    return bounded
