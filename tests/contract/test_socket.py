"""The live socket of a running service, with its own client: equals the results of requests, across any break."""

import asyncio
import json
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.contract.api import Api, events, silence, tone
from tests.unit.app.sessions.sockets import END, line_at, refused

PIECES = [tone(0.25), silence(0.25), tone(0.5), tone(0.1)]


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
async def test_socket_results_match_requests(api: Api) -> None:
    pieces = PIECES * 8
    by_requests, by_socket = api.create(), api.create()
    api.send(by_requests, *pieces)
    api.seal(by_requests)
    messages = await streamed(api, by_socket, pieces)
    assert [one["next_chunk"] for one in messages if one["type"] == "ack"][-1] == len(pieces)
    heard = [one for one in messages if one["type"] == "window"]
    told = [{name: one[name] for name in ("start_time", "end_time", "tags")} for one in heard]
    read = [events(api.follow(session)) for session in (by_requests, by_socket)]
    assert told == read[0] == read[1]
    assert api.page(by_socket)["refs"]["chunk_sequence"] == len(pieces)
    assert messages[-1]["type"] == "end"


async def _with_breaks(api: Api, session: str, pieces: list[bytes], chance: random.Random) -> list[dict[str, Any]]:
    """Send pieces while the connection breaks repeatedly, resuming as `socket.md` tells clients to."""
    got: list[dict[str, Any]] = []
    cursor = "start"
    while True:
        async with socket_of(api, session, f"?after={cursor}") as line:
            hello = await line.next()
            for piece in pieces[hello["next_chunk"] :]:
                await line.socket.send(piece)
                if chance.random() < 0.1:
                    break
            else:
                await line.socket.send(END)
                return [*got, *await line.rest()]
            with suppress(TimeoutError):
                for _ in range(chance.randrange(6)):
                    message = await asyncio.wait_for(line.next(), 0.3)
                    got.append(message)
                    cursor = message.get("cursor", cursor)
            line.socket.transport.abort()


@pytest.mark.both_logs
async def test_reconnects_lose_or_repeat_nothing(api: Api) -> None:
    pieces = [tone(0.05 + 0.01 * (number % 7)) for number in range(60)]
    whole, broken = api.create(), api.create()
    expected = await streamed(api, whole, pieces)
    got = await _with_breaks(api, broken, pieces, random.Random(1))
    windows = [[one for one in some if one["type"] == "window"] for some in (expected, got)]
    assert [one["window"] for one in windows[1]] == list(range(len(windows[0])))
    assert [one["tags"] for one in windows[0]] == [one["tags"] for one in windows[1]]
    assert api.page(broken)["refs"]["chunk_sequence"] == len(pieces)


@pytest.mark.both_logs
async def test_chunk_number_taken_by_request_closes_socket(api: Api) -> None:
    session = api.create()
    async with socket_of(api, session, "?events=none") as line:
        await line.next()
        await asyncio.to_thread(api.put, session, 0, tone(1))
        await line.socket.send(tone(1))
        assert (await line.next_of("ack"))["next_chunk"] == 1
        await asyncio.to_thread(api.put, session, 1, tone(1))
        await line.socket.send(silence(1))
        assert (await refused(line, 4410, 409))["next_chunk"] == 2


async def test_competing_sockets_keep_chunks_consecutive(api: Api) -> None:
    """Each reconnects whenever the other replaced it; the numbers stay consecutive."""

    async def fighter(session: str, pieces: list[bytes], turns: int) -> None:
        for _ in range(turns):
            async with socket_of(api, session, "?events=none") as line:
                with suppress(ConnectionClosed):
                    hello = await line.next()
                    for piece in pieces[hello.get("next_chunk", len(pieces)) :][:20]:
                        await line.socket.send(piece)
                        await asyncio.sleep(0.001)

    session, whole = api.create(), api.create()
    pieces = [tone(0.01 + 0.001 * (number % 5)) for number in range(2000)]
    await asyncio.gather(*(fighter(session, pieces, 25) for _ in range(2)))
    async with socket_of(api, session) as line:
        number = (await line.next())["next_chunk"]
        await line.socket.send(pieces[number])
        await line.socket.send(END)
        await line.rest()
    await streamed(api, whole, pieces[: number + 1])
    assert events(api.follow(session)) == events(api.follow(whole))


async def test_times_notes_and_names_are_told_and_kept(api: Api) -> None:
    """They come in the order of the audio, to listeners of the session and of the project, and again later."""
    now = datetime.now(UTC).replace(microsecond=0)
    session, query = api.create(), "?events=window,source.lost,source.back&after=start"
    api.http.patch(f"/audio_sessions/{session}", json={"file_name": "door", "metadata": {"room": "hall"}})
    async with socket_of(api, session, query) as line:
        assert (await line.next())["notes"] == 0
        for seconds, event in ((60, "source.lost"), (20, "source.back")):
            time = (now - timedelta(seconds=seconds)).isoformat()
            await line.socket.send(json.dumps({"type": "captured", "time": time}))
            await line.socket.send(tone(1))
            await line.socket.send(json.dumps({"type": "source", "event": event, "time": time, "reason": "test"}))
        await line.socket.send(END)
        told = await line.rest()
    async with socket_of(api, session, query + "&mode=listen") as line:
        again = await line.rest()
    found = [one for one in told if one["type"] in ("window", "source.lost", "source.back")]
    assert found == [one for one in again if one["type"] in ("window", "source.lost", "source.back")]
    kinds = [one["type"] for one in found]
    assert kinds == ["window", "source.lost", "window", "window", "source.back"]
    begun = now - timedelta(seconds=60)
    times = [datetime.fromisoformat(one["captured_at"]) for one in found if one["type"] == "window"]
    assert times == [begun, begun + timedelta(seconds=0.5), now - timedelta(seconds=20)]
    listed = api.http.get("/audio_sessions/", headers={"X-Api-Key": api.key}).json()["sessions"]
    entry = next(one for one in listed if one["session_id"] == session)
    assert (entry["file_name"], entry["metadata"]) == ("door", {"room": "hall"})
