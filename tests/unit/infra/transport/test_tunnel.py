"""Sockets of another node's session: what the client gets if the owner refuses."""

import asyncio
from unittest import mock

import pytest

from app.http.replies import Reply
from infra.transport import tunnel
from topics.errors import Unavailable

SCOPE = {"raw_path": b"/audio_sessions/1/socket", "query_string": b"", "headers": []}


async def answer_to(*pieces: bytes) -> object:
    """Return what comes of an owner that answers with these pieces and keeps its connection."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            return await tunnel.open_tunnel(mock.Mock(), SCOPE, url, [])
        finally:
            await closed.wait()


async def test_refusal_is_returned_whole() -> None:
    reply = await answer_to(b"HTTP/1.1 404 Not Found\r\ndate: now\r\ncontent-length: 7\r\n\r\nno", b"thin", b"g")
    assert isinstance(reply, Reply)
    assert (reply.status, reply.headers) == (404, [(b"content-length", b"7")])
    assert reply.body == b"nothing"


@pytest.mark.parametrize("length", [10, tunnel.LONGEST_ERROR + 1])
async def test_refusal_cut_short_is_no_answer(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length would promise the client more than comes."""
    monkeypatch.setattr(tunnel, "GRACE_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="does not answer"):
        await answer_to(b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\nnothing" % length)


async def test_cancelled_opening_leaves_no_connection_to_owner() -> None:
    """The client has hung up, or this node stops."""
    opening = asyncio.create_task(answer_to())
    await asyncio.sleep(0.1)
    opening.cancel()
    # `answer_to` waits until the owner sees the end of the connection.
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(opening, 10)
