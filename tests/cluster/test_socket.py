"""A live socket through a forwarding node, while the session's node dies and the other one takes over."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.cluster.nodes import Pair
from tests.recovery.load import Client, half_second
from tests.unit.app.sessions.sockets import END, Line, line_at, of_type

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CHUNKS = [half_second(1, number) for number in range(12)]


async def _gone_on_with(url: str, path: str) -> list[dict[str, Any]]:
    """Reconnect until the session has its new node, and send the rest."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionClosed, InvalidHandshake, OSError):
                async with line_at(url, path) as line:
                    if (hello := await line.next())["type"] == "hello":
                        return await _rest(line, hello["next_chunk"])
            await asyncio.sleep(0.2)


async def _rest(line: Line, next_chunk: int) -> list[dict[str, Any]]:
    assert next_chunk == 6
    for chunk in CHUNKS[next_chunk:]:
        await line.socket.send(chunk)
    await line.socket.send(END)
    messages = await line.rest()
    assert await line.code() == 1000
    return of_type(messages, "window")


async def test_socket_survives_death_of_session_owner(nodes: Pair) -> None:
    one, two = nodes
    async with Client(one) as first, Client(two) as second:
        stream = await first.open()
        path, url = f"/audio_sessions/{stream.session}/socket", two.url.replace("http", "ws", 1)
        async with line_at(url, f"{path}?after=start", x_api_key=two.key) as line:
            hello = await line.next()
            assert (hello["type"], hello["next_chunk"]) == ("hello", 0)
            for chunk in CHUNKS[:6]:
                await line.socket.send(chunk)
            windows = [await line.next_of("window") for _ in range(5)]
            one.kill()
            # No more messages: the forwarding node tells the client to reconnect.
            assert await line.rest() == []
            assert await line.code() == 1001
        windows += await _gone_on_with(url, f"{path}?after={windows[-1]['cursor']}")
        assert [window["window"] for window in windows] == list(range(len(windows)))
        read = await second.events(stream.session)
        told = [{name: window[name] for name in ("start_time", "end_time", "tags")} for window in windows]
        assert told == read
