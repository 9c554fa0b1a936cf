"""Reads that wait: wake-ups, ends, and few polls."""

import asyncio
from collections.abc import Callable
from unittest import mock

import msgspec
import pytest

from streams.folding.followers import Subscription
from tests.contract.api import tone
from tests.unit.app.conftest import OPTIONS, House
from tests.unit.app.jobs.conftest import Exchange
from tests.unit.app.sessions.sockets import opened
from tests.waiting import turn
from topics.errors import Unavailable
from topics.sessions.records import Chunk, Deleted, Sealed


@pytest.fixture
def house() -> House:
    """An edge that waits for as long as a test takes."""
    return House(msgspec.structs.replace(OPTIONS, poll_seconds=60))


async def _pending(house: House) -> str:
    house.sessions.paused = True
    session = await opened(house)
    await house.sessions.submit(session, Chunk("c", 0, tone(1)))
    return session


@pytest.fixture
def session(loop: asyncio.Runner, house: House) -> str:
    """A stream session with an unanalysed chunk."""
    return loop.run(_pending(house))


def read(house: House, session: str, query: str = "") -> Exchange:
    return Exchange(house, f"/audio_sessions/{session}/status{query}")


async def waiting(house: House, session: str, query: str = "") -> Exchange:
    """Begin a read, and check that it waits."""
    reader = read(house, session, query)
    for _ in range(10):
        await turn()
    assert reader.status == 0
    return reader


async def test_wait_reads_session_only_after_change(
    house: House, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = mock.Mock(wraps=house.sessions.view)
    monkeypatch.setattr(house.sessions, "view", view)
    reader = await waiting(house, session)
    assert view.call_count == 2
    house.sessions.analyse(session)
    await reader.end()
    assert (reader.status, view.call_count) == (200, 3)
    assert house.sessions.followers[session] == set()


async def test_change_before_subscribing_is_not_missed(
    house: House, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe = house.sessions.subscribe

    def late(name: str, woken: Callable[[bool], None]) -> Subscription:
        house.sessions.analyse(name)
        return subscribe(name, woken)

    monkeypatch.setattr(house.sessions, "subscribe", late)
    assert (await read(house, session).end()).status == 200


async def test_disconnect_and_deletion_end_wait(house: House, session: str) -> None:
    gone, reader = await waiting(house, session), await waiting(house, session)
    assert len(house.sessions.followers[session]) == 2
    await gone.leave()
    assert gone.status == 0
    await house.sessions.submit(session, Deleted("d"))
    assert (await reader.end()).status == 404
    assert house.sessions.followers[session] == set()


@pytest.mark.parametrize("seen", ["watch", "view"])
async def test_moved_partition_ends_wait_with_503(
    house: House, session: str, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    reader, moved = await waiting(house, session), Unavailable("the partition moved", retry_after=3)
    if seen == "view":
        monkeypatch.setattr(house.sessions, "view", mock.Mock(side_effect=moved))
    house.sessions.followers.wake(session, lost=seen == "watch")
    await reader.end()
    assert (reader.status, reader.headers["retry-after"]) == (503, {"watch": "1", "view": "3"}[seen])


@pytest.mark.parametrize("seconds", [0.0, 0.02])
async def test_wait_timeout_returns_current_state(seconds: float) -> None:
    house = House(msgspec.structs.replace(OPTIONS, poll_seconds=seconds))
    session = await _pending(house)
    results = await Exchange(house, f"/audio_sessions/{session}/results").end()
    reader = await read(house, session).end()
    assert (results.status, reader.status) == (200, 200)
    assert b'"in_progress":true,"page":{"count":0,"offset":0,"total":0,"next_token":"' in reader.body


async def test_only_token_reader_waits_at_end_of_writable_session(house: House, session: str) -> None:
    house.sessions.analyse(session)
    plain = await read(house, session, "?offset=1").end()
    token = plain.body.split(b'"next_token":"')[1].split(b'"')[0].decode()
    follower = await waiting(house, session, f"?next_token={token}")
    await house.sessions.submit(session, Chunk("c", 1, tone(0.5)))
    house.sessions.analyse(session)
    assert b'"count":1,"offset":1,"total":2' in (await follower.end()).body


async def test_last_page_of_sealed_stream_waits_for_its_end(house: House, session: str) -> None:
    """Otherwise a client would get all windows with a token, and then an empty page."""
    await house.sessions.submit(session, Chunk("c", 1, tone(1)))
    house.sessions.analyse(session)
    await house.sessions.submit(session, Sealed("s"))
    first = await read(house, session, "?count=2").end()
    assert b'"count":2,"offset":0,"total":3,"next_token":' in first.body, "more windows are here already"
    last, past = await waiting(house, session, "?offset=2"), await waiting(house, session, "?offset=3")
    house.sessions.analyse(session)
    assert b'"in_progress":false,"page":{"count":1,"offset":2,"total":3}' in (await last.end()).body
    assert b'"count":0,"offset":3,"total":3}' in (await past.end()).body


async def test_windows_that_are_there_are_answered_at_once(house: House, session: str) -> None:
    house.sessions.analyse(session)
    await house.sessions.submit(session, Chunk("c", 1, tone(1)))
    await house.sessions.submit(session, Sealed("s"))
    page = await read(house, session).end()
    assert b'"in_progress":true,"page":{"count":1,"offset":0,"total":1,"next_token":' in page.body
    idle = await read(house, await opened(house), "?offset=5").end()
    assert b'"count":0,"offset":5,"total":0' in idle.body
