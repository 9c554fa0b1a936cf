"""Times of capture and notes of a source in the client's live socket: kept, sent again, in their place."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import earshot_client as sdk
from earshot_client import AsyncClient, Client
from earshot_client._socket_state import SocketRequest, SocketState
from tests.contract.api import tone
from tests.cutter import Cutter
from tests.unit.app.conftest import KEY, House
from tests.waiting import wait_for
from topics.sessions.records import Chunk, SourceNoted

HALF = tone(0.5)
NOW = datetime.now(UTC).replace(microsecond=250_000)


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def said(house: House) -> list[Any]:
    """Return the accepted commands after the opening: times of chunks, and events."""
    return [
        one.captured if isinstance(one, Chunk) else one.event
        for one in house.sessions.appended
        if isinstance(one, Chunk | SourceNoted)
    ]


@pytest.fixture
def client(cutter: Cutter) -> Iterator[Client]:
    with Client(cutter.url, KEY) as client:
        yield client


@pytest.mark.slow
def test_times_and_notes_arrive_in_order(client: Client, house: House) -> None:
    ages = [timedelta(seconds=9), timedelta(days=2)]
    with client.socket() as socket:
        socket.send(HALF, captured=NOW - ages[0])
        socket.source("source.lost", "no answer", at=NOW)
        socket.source("source.back")
        socket.send(HALF, captured=(NOW - ages[1]).isoformat(), spooled=True)
        socket.send(HALF)
        socket.source("source.silent", spooled=True)
    assert said(house) == [
        ms(NOW - ages[0]),
        "source.lost",
        "source.back",
        ms(NOW - ages[1]),
        0,
        "source.silent",
    ]
    lost = next(one for one in house.sessions.appended if isinstance(one, SourceNoted))
    assert (lost.at, lost.reason) == (ms(NOW), "no answer")
    assert socket.warning is None


@pytest.mark.slow
def test_refused_time_is_a_warning(client: Client, house: House) -> None:
    with client.socket() as socket:
        socket.send(HALF, captured=NOW - timedelta(hours=2))
        wait_for(lambda: socket.next_chunk == 1)
        assert "clock" in str(socket.warning)
    assert said(house) == [0]


@pytest.mark.slow
def test_breaks_lose_and_double_no_note(client: Client, cutter: Cutter, house: House) -> None:
    with client.socket() as socket:
        for number in range(20):
            socket.send(HALF, captured=NOW + timedelta(seconds=number))
            socket.source("source.silent", str(number))
            if number % 4 == 3:
                cutter.cut()
        socket.end()
        for _ in socket:
            pass
    notes = [one.reason for one in house.sessions.appended if isinstance(one, SourceNoted)]
    assert notes == [str(number) for number in range(20)]
    kept = [one.captured for one in house.sessions.appended if isinstance(one, Chunk)]
    assert list(dict.fromkeys(kept)) == [ms(NOW + timedelta(seconds=number)) for number in range(20)]


async def test_asyncio_client(cutter: Cutter, house: House) -> None:
    async with AsyncClient(cutter.url, KEY) as client, client.socket() as socket:
        await socket.send(HALF, captured=NOW)
        await socket.source("source.silent")
    assert said(house) == [ms(NOW), "source.silent"]


def test_requests_have_times(client: Client, house: House) -> None:
    session = client.create_session(sdk.MICROPHONE).id
    client.put_chunk(session, 0, HALF, captured=NOW)
    client.put_chunk(session, 1, HALF, captured=NOW - timedelta(days=3), spooled=True)
    assert said(house) == [ms(NOW), ms(NOW - timedelta(days=3))]


# --- what is kept ---------------------------------------------------------------------------------------------------


def hello(next_chunk: int = 0, **fields: Any) -> bytes:
    told = {"session_id": "s", "next_chunk": next_chunk, "cursor": "c", "state": "writable"}
    return json.dumps({"type": "hello", **told, "limits": {"frame_bytes": 9}, **fields}).encode()


def ack(next_chunk: int, **fields: Any) -> bytes:
    return json.dumps({"type": "ack", "next_chunk": next_chunk, **fields}).encode()


def state_of(greeting: bytes) -> SocketState:
    state = SocketState(SocketRequest("", sdk.MICROPHONE))
    state.request()
    state.received(greeting)
    return state


def sent(state: SocketState) -> list[str]:
    """Return what a connection sends next: the bytes of chunks, and what text messages tell."""
    messages = iter(state.next_to_send, None)
    return [one.decode() if isinstance(one, bytes) else json.loads(str(one)).get("event", "time") for one in messages]


def test_unacknowledged_notes_are_sent_again_in_their_place() -> None:
    state = state_of(hello(notes=4))
    state.note("source.lost", None, NOW, False)
    state.keep(b"one", NOW)
    state.note("source.back", None, NOW, False)
    state.keep(b"two")
    state.note("source.silent", None, NOW, False)
    everything = ["source.lost", "time", "one", "source.back", "two", "source.silent"]
    assert sent(state) == everything
    for greeting, rest in (
        (hello(0, notes=4), everything),
        (hello(0, notes=5), everything[1:]),
        (hello(1, notes=5), everything[3:]),
        (hello(1, notes=6), everything[4:]),
        (hello(2, notes=6), everything[5:]),
    ):
        state.request()
        state.received(greeting)
        assert sent(state) == rest
        assert not state.is_stored
    state.received(ack(2, notes=7))
    assert state.is_stored


def test_acknowledged_chunk_acknowledges_notes_before_it() -> None:
    state = state_of(hello(notes=0))
    state.note("source.lost", None, NOW, False)
    state.keep(b"one")
    state.received(ack(1))
    assert state.is_stored


def test_note_that_session_did_not_take_is_no_failure() -> None:
    state = state_of(hello(notes=0))
    state.note("source.lost", None, NOW, False)
    state.received(b'{"type":"end","cursor":"c"}')
    state.closed(1000, "")
    assert state.over
    with pytest.raises(sdk.SessionClosed):
        state.note("source.back", None, NOW, False)


def test_older_service_is_told_neither_times_nor_notes() -> None:
    state = state_of(hello())
    state.note("source.lost", None, NOW, False)
    state.keep(b"one", NOW)
    assert sent(state) == ["one"]
