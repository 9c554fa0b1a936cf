"""Connections are handed over to other lanes, or not."""

import asyncio
import os
import socket
from functools import partial
from typing import Any
from unittest import mock

from infra.service.doors import _connection
from infra.transport import lanes
from infra.transport.lanes import Lanes, LaneStates
from tests.unit.app.sessions.sockets import listening
from topics.keys import ID_LENGTH


def lanes_to(outbox: socket.socket, inbox: socket.socket) -> Lanes:
    """Return the view of lane 0, for which another lane owns everything."""
    memory = os.memfd_create("lanes")
    os.ftruncate(memory, 2)
    states = LaneStates(memory, 2)
    os.close(memory)
    states[1] = LaneStates.SERVING
    return Lanes(0, ["http://here", "http://there"], lambda id: "http://there", [inbox, outbox], inbox, states)


def test_full_inbox_refuses_at_once() -> None:
    """Otherwise two lanes that give each other connections would wait for each other for ever."""
    outbox, inbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    transport = mock.Mock(spec=asyncio.Transport)
    transport.is_closing.return_value, transport.get_write_buffer_size.return_value = False, 0
    given = 0
    with outbox, inbox, socket.socket() as connection:
        transport.get_extra_info.return_value = connection
        ours = lanes_to(outbox, inbox)
        while ours.give(1, transport, bytes(lanes.INLINE_BYTES)):
            given += 1
    assert 0 < given == ours.given


async def test_lane_that_starts_again_is_waited_for() -> None:
    outbox, inbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with outbox, inbox:
        ours = lanes_to(outbox, inbox)
        ours.states[1] = LaneStates.RESTARTING
        asked = asyncio.create_task(ours.serving("http://there"))
        await asyncio.sleep(2 * lanes.POLL_SECONDS)
        assert not asked.done()
        ours.states[1] = LaneStates.SERVING
        assert await asked == 1
        ours.states[1] = LaneStates.FAILED
        assert await ours.serving("http://there") is None
        assert await ours.serving("http://another-node") is None


async def test_request_is_handed_over_once() -> None:
    """Two lanes that disagree about the owner: the second serves the request, and gives the next one away again."""
    served: list[bytes] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        served.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    outbox, inbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with outbox, inbox:
        async with listening(application) as (server, door):
            door.lanes = lanes_to(outbox, inbox)
            door.lanes.take(partial(_connection, server, door), mock.Mock())
            reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
            for body in (b"one", bytes(2 * lanes.INLINE_BYTES)):
                path = f"/audio_sessions/{'A' * ID_LENGTH}/chunks/0"
                writer.write(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
                assert len(door) == 1
            writer.close()
            door.lanes.stop()
    assert len(served) == door.lanes.given == door.lanes.taken == 2
