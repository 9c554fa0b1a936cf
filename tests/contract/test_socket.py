"""The live socket of a running service: it gives the results of requests, and competing sockets keep the order."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.contract.api import Api, silence, tone
from tests.unit.app.sessions.sockets import Line, line_at

PIECES = [tone(0.25), silence(0.25), tone(0.5), tone(0.1)]
END = '{"type":"end"}'


def socket_of(api: Api, session: str, query: str = "") -> Any:
    return line_at(api.service.url.replace("http", "ws", 1), f"/audio_sessions/{session}/socket{query}")


async def streamed(api: Api, session: str, pieces: list[bytes]) -> list[dict[str, Any]]:
    async with socket_of(api, session) as line:
        assert (await line.next())["type"] == "hello"
        for piece in pieces:
            await line.socket.send(piece)
        await line.socket.send(END)
        messages: list[dict[str, Any]] = await line.rest()
        assert await line.code() == 1000
    return messages


@pytest.mark.both_logs
def test_socket_results_match_requests(api: Api) -> None:
    pieces = PIECES * 8
    by_requests, by_socket = api.create(), api.create()
    api.send(by_requests, *pieces)
    api.seal(by_requests)
    messages = asyncio.run(streamed(api, by_socket, pieces))
    assert [one["next_chunk"] for one in messages if one["type"] == "ack"][-1] == len(pieces)
    heard = [one for one in messages if one["type"] == "window"]
    told = [{name: one[name] for name in ("start_time", "end_time", "tags")} for one in heard]
    read = [
        [event for page in api.follow(session) for event in page["inference"]["results"]]
        for session in (by_requests, by_socket)
    ]
    assert told == read[0] == read[1]
    assert api.page(by_socket)["refs"]["chunk_sequence"] == len(pieces)
    assert messages[-1]["type"] == "end"


def test_competing_sockets_keep_chunks_consecutive(api: Api) -> None:
    """Each reconnects whenever the other replaced it; the numbers stay consecutive."""

    async def fighter(session: str, pieces: list[bytes], turns: int) -> None:
        for _ in range(turns):
            async with socket_of(api, session, "?events=none") as line:
                await _send_on(line, pieces)

    async def _send_on(line: Line, pieces: list[bytes]) -> None:
        with suppress(ConnectionClosed):
            hello = await line.next()
            if hello["type"] == "hello":
                for piece in pieces[hello["next_chunk"] :][:20]:
                    await line.socket.send(piece)
                    await asyncio.sleep(0.001)

    async def fight(session: str) -> None:
        pieces = [tone(0.01 + 0.001 * (number % 5)) for number in range(2000)]
        await asyncio.gather(*(fighter(session, pieces, 25) for _ in range(2)))
        async with socket_of(api, session) as line:
            number = (await line.next())["next_chunk"]
            await line.socket.send(pieces[number])
            await line.socket.send(END)
            await line.rest()
        whole = await asyncio.to_thread(api.create)
        await streamed(api, whole, pieces[: number + 1])
        results = [
            [event for page in api.follow(one) for event in page["inference"]["results"]] for one in (session, whole)
        ]
        assert results[0] == results[1]

    asyncio.run(fight(api.create()))
