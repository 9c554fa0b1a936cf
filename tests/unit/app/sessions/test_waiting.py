"""Reads that wait: wake-ups, ends, and few polls."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from streams.folding.followers import Subscription
from tests.contract.api import tone
from tests.unit.app.conftest import OPTIONS, House
from tests.unit.app.jobs.conftest import Exchange
from tests.unit.app.sessions.sockets import opened
from topics.errors import Unavailable
from topics.sessions.records import Chunk, Sealed


async def pending(house: House) -> str:
    """Return a stream session with an unanalysed chunk."""
    house.sessions.paused = True
    session = await opened(house)
    await house.sessions.submit(session, Chunk("c", 0, tone(1)))
    return session


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def patient() -> House:
    return House(msgspec.structs.replace(OPTIONS, poll_seconds=60))


async def test_wait_reads_session_only_after_change(monkeypatch: pytest.MonkeyPatch) -> None:
    house = patient()
    session = await pending(house)
    looks = 0
    view = house.sessions.view

    def counted(name: str) -> Any:
        nonlocal looks
        looks += 1
        return view(name)

    monkeypatch.setattr(house.sessions, "view", counted)
    reader = Exchange(house, f"/audio_sessions/{session}/status")
    await turns(200)
    assert (reader.status, looks) == (0, 2)
    house.sessions.analyse(session)
    await reader.end()
    assert (reader.status, looks) == (200, 3)
    assert house.sessions.followers[session] == set()


async def test_change_before_subscribing_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    house = patient()
    session = await pending(house)
    subscribe = house.sessions.subscribe

    def late(name: str, woken: Callable[[bool], None]) -> Subscription:
        house.sessions.analyse(name)
        return subscribe(name, woken)

    monkeypatch.setattr(house.sessions, "subscribe", late)
    reader = await Exchange(house, f"/audio_sessions/{session}/status").end()
    assert reader.status == 200


async def test_disconnect_ends_wait() -> None:
    house = patient()
    session = await pending(house)
    reader = Exchange(house, f"/audio_sessions/{session}/status")
    await turns()
    assert len(house.sessions.followers[session]) == 1
    await reader.leave()
    assert reader.status == 0
    assert house.sessions.followers[session] == set()


@pytest.mark.parametrize("seen", ["watch", "view"])
async def test_moved_partition_ends_wait_with_503(monkeypatch: pytest.MonkeyPatch, seen: str) -> None:
    def gone(name: str) -> Any:
        raise Unavailable("the partition moved", retry_after=3)

    house = patient()
    session = await pending(house)
    reader = Exchange(house, f"/audio_sessions/{session}/status")
    await turns()
    if seen == "view":
        monkeypatch.setattr(house.sessions, "view", gone)
    house.sessions.followers.wake(session, lost=seen == "watch")
    await reader.end()
    assert reader.status == 503
    assert reader.headers["retry-after"] == {"watch": "1", "view": "3"}[seen]


@pytest.mark.parametrize("seconds", [0.0, 0.02])
async def test_wait_timeout_returns_current_state(seconds: float) -> None:
    house = House(msgspec.structs.replace(OPTIONS, poll_seconds=seconds))
    session = await pending(house)
    for operation in ("status", "results"):
        reader = await Exchange(house, f"/audio_sessions/{session}/{operation}").end()
        assert reader.status == 200
    reader = await Exchange(house, f"/audio_sessions/{session}/status").end()
    assert b'"in_progress":true,"page":{"count":0,"offset":0,"total":0,"next_token":"' in reader.body


async def test_only_token_reader_waits_at_end_of_writable_session() -> None:
    house = patient()
    session = await pending(house)
    house.sessions.analyse(session)
    path = f"/audio_sessions/{session}/status"
    plain = await Exchange(house, f"{path}?offset=1").end()
    token = plain.body.split(b'"next_token":"')[1].split(b'"')[0].decode()
    follower = Exchange(house, f"{path}?next_token={token}")
    await turns()
    assert follower.status == 0
    await house.sessions.submit(session, Chunk("c", 1, tone(0.5)))
    house.sessions.analyse(session)
    await follower.end()
    assert b'"count":1,"offset":1,"total":2' in follower.body


async def test_last_page_of_sealed_stream_waits_for_its_end() -> None:
    """Otherwise a client would get all windows with a token, and then an empty page."""
    house = patient()
    session = await pending(house)
    await house.sessions.submit(session, Chunk("c", 1, tone(1)))
    house.sessions.analyse(session)
    await house.sessions.submit(session, Sealed("s"))
    path = f"/audio_sessions/{session}/status"
    first = await Exchange(house, f"{path}?count=2").end()
    assert b'"count":2,"offset":0,"total":3,"next_token":' in first.body, "more windows are here already"
    last, past = Exchange(house, f"{path}?offset=2"), Exchange(house, f"{path}?offset=3")
    await turns()
    assert (last.status, past.status) == (0, 0)
    house.sessions.analyse(session)
    await last.end()
    assert b'"in_progress":false,"page":{"count":1,"offset":2,"total":3}' in last.body
    assert b'"count":0,"offset":3,"total":3}' in (await past.end()).body


async def test_sealed_stream_with_pending_chunks_is_answered_at_once() -> None:
    house = patient()
    session = await pending(house)
    house.sessions.analyse(session)
    await house.sessions.submit(session, Chunk("c", 1, tone(1)))
    await house.sessions.submit(session, Sealed("s"))
    page = await Exchange(house, f"/audio_sessions/{session}/status").end()
    assert b'"in_progress":true,"page":{"count":1,"offset":0,"total":1,"next_token":' in page.body


async def test_read_without_pending_work_returns_at_once() -> None:
    house = patient()
    session = await opened(house)
    reader = await Exchange(house, f"/audio_sessions/{session}/status?offset=5").end()
    assert b'"count":0,"offset":5,"total":0' in reader.body


async def test_deletion_ends_wait() -> None:
    house = patient()
    session = await pending(house)
    reader = Exchange(house, f"/audio_sessions/{session}/status")
    await turns()
    assert reader.status == 0
    await Exchange(house, f"/audio_sessions/{session}", "DELETE").end()
    await reader.end()
    assert reader.status == 404
