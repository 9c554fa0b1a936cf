"""Streamed bodies: sent at the client's pace, and only while it listens."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from time import perf_counter
from typing import Final

from starlette.types import Receive, Scope, Send

from app.http.bodies import wait_for_disconnect
from app.http.call import KeyEnd
from app.http.replies import Reply, StreamReply, reply_of_bytes
from app.http.turns import SLICE_SECONDS, LoopTurns
from topics.turns import Holder

#: Seconds after which a piece that the client has not read becomes the last one.
STALLED_SECONDS: Final = 60.0
#: Bytes that are worth their own write.
PIECE_BYTES: Final = 64 * 1024


async def stream(
    reply: StreamReply, scope: Scope, receive: Receive, send: Send, ended: KeyEnd | None = None
) -> BaseException | None:
    """Send a body until it ends or fails, the client stops reading, or its key has `ended`; return the failure.

    A broken body is left without its end: the server then closes the connection, and the client sees that something is
    missing.
    """
    sending = asyncio.create_task(_send(reply, scope["method"] == "HEAD", send))
    ending = None if ended is None else asyncio.create_task(ended())
    ends = [asyncio.create_task(wait_for_disconnect(receive)), *([] if ending is None else [ending])]
    try:
        await asyncio.wait((sending, *ends), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:  # the server is stopping
        return error
    finally:
        for task in (sending, *ends):
            task.cancel()
        await asyncio.gather(sending, *ends, return_exceptions=True)
    if not sending.cancelled():
        return sending.exception()
    return None if ending is None or ending.cancelled() else ending.result()


async def _send(reply: StreamReply, bare: bool, send: Send) -> None:
    async with aclosing(reply.pieces) as pieces:
        # Take a piece before anything can fail: closing a generator that has not started releases nothing.
        piece = None if bare else await anext(pieces, None)
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        while piece is not None:
            async with asyncio.timeout(STALLED_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await anext(pieces, None)
        await send({"type": "http.response.body", "body": b""})


async def reply_in_pieces(
    pieces: AsyncGenerator[bytes, None], content_type: tuple[bytes, bytes]
) -> Reply | StreamReply:
    """Return an answer made of pieces: whole if it is small, otherwise streamed.

    Errors of the first pieces pass through, because the status can still change.
    """
    start = b""
    async for piece in pieces:
        if len(start) >= PIECE_BYTES:
            return StreamReply(200, [content_type], with_start(start + piece, pieces))
        start += piece
    return reply_of_bytes(200, content_type, start)


async def with_start(start: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield a piece that was taken already, then the others."""
    async with aclosing(pieces):
        yield start
        async for piece in pieces:
            yield piece


def coalesced(pieces: Iterable[bytes], seconds: float = math.inf) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at least `PIECE_BYTES`, except the last; after each `seconds` an empty one."""
    batch: list[bytes] = []
    size, until = 0, perf_counter() + seconds
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(batch)
            batch, size, until = [], 0, perf_counter() + seconds
        elif perf_counter() >= until:
            yield b""
            until = perf_counter() + seconds
    if batch:
        yield b"".join(batch)


async def in_turn(turns: LoopTurns, holder: Holder, pieces: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the same bytes in pieces of at least `PIECE_BYTES`, made on demand in turns of the holder."""
    async with aclosing(turns.each(holder, coalesced(pieces, SLICE_SECONDS))) as made:
        async for piece in made:
            if piece:
                yield piece
