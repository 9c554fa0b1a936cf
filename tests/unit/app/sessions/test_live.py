"""Listening, over in-memory ports: slow readers, bounds, moves, and streams merged from other nodes."""

import asyncio
import time
from typing import Any
from unittest import mock

import msgspec
import pytest

from app.sessions import joined_live, live, project_live, socket_events
from app.shown_alarms import ALARM
from tests import sse
from tests.contract.api import RAW, silence, tone
from tests.unit.app.conftest import KEY, House
from tests.unit.app.double import Session
from tests.unit.app.jobs.conftest import BOTH, SOUND, Exchange, sounds, transcript
from tests.unit.app.jobs.test_elsewhere import served
from tests.unit.app.sessions.sockets import opened
from tests.waiting import until
from topics.errors import Unavailable
from topics.jobs.options import Service
from topics.jobs.records import Billed, Overdue, Removed
from topics.keys import new_id
from topics.ports.lists import Coverage
from topics.sessions.records import Chunk, Deleted, Opened, Sealed
from topics.sessions.rules import SessionHead

Event = tuple[str, Any]


def events(exchange: Exchange) -> list[Event]:
    """Return the whole events of an answer so far."""
    lines = exchange.body.decode().rpartition("\n\n")[0].split("\n")
    return [(name, data) for name, _, data in sse.events(lines)]


def names(exchange: Exchange) -> list[str]:
    return [name for name, _ in events(exchange)]


def windows(exchange: Exchange) -> list[int]:
    return [data["window"] for name, data in events(exchange) if name == "window"]


async def put(house: House, session: str, first: int, seconds: float) -> None:
    """Send audio, and have it analysed."""
    before = house.sessions.sessions[session].head.windows
    await house.sessions.submit(session, Chunk("c", first, tone(seconds)))
    await until(lambda: house.sessions.sessions[session].head.windows > before)


def project_stream(house: House, **headers: str) -> Exchange:
    return Exchange(house, "/api/v1/live", x_api_key=KEY, **headers)


async def over(*exchanges: Exchange) -> None:
    for exchange in exchanges:
        await exchange.leave()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_live, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(project_live, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(joined_live, "POLL_SECONDS", 0.02)


async def test_slow_reader_gets_every_window(house: House) -> None:
    session = await opened(house)
    one, all_of_them = Exchange(house, f"/audio_sessions/{session}/live"), project_stream(house)
    for exchange in (one, all_of_them):
        await exchange.until(lambda body: b"event: session" in body)
    await put(house, session, 0, 1.0)
    for exchange in (one, all_of_them):
        await exchange.until(lambda body: b"event: window" in body)
        exchange.reading.clear()
    await put(house, session, 1, 40.0)
    await asyncio.sleep(0.05)
    await put(house, session, 2, 40.0)
    for exchange in (one, all_of_them):
        exchange.reading.set()
        await exchange.until(lambda body: body.count(b"event: window") == 161)
        assert windows(exchange) == list(range(161))
        behind = [data for name, data in events(exchange) if name == "behind"]
        assert behind
        assert behind[0]["first"] == 1
    levels = ["level" in data for name, data in events(one) if name == "window"]
    assert levels == [True] * 8 + [False] * 153, "what is forgotten is left out"
    await over(one, all_of_them)


async def test_listeners_are_limited_and_release_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PROJECT_LISTENERS", 2)
    monkeypatch.setattr(live, "LISTENERS", 3)
    house = House()
    session, other = await opened(house), await opened(house, "others")
    path = f"/audio_sessions/{session}/live"
    held = [Exchange(house, path), project_stream(house), Exchange(house, f"/audio_sessions/{other}/live")]
    for exchange in held:
        await exchange.until(bool)
    for refused in (Exchange(house, path), project_stream(house), Exchange(house, f"/audio_sessions/{other}/live")):
        await refused.end()
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
    await over(held[0])
    again = Exchange(house, path)
    await again.until(bool)
    assert again.status == 200
    await over(again, *held[1:])
    head = await Exchange(house, path, "HEAD").end()
    assert head.status == 200
    assert not any(house.sessions.followers[session])
    assert not any(house.sessions.listeners["project"])


async def test_heartbeats_are_sent_while_idle(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in live, project_live:
        monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.02)
    session = await opened(house)
    for exchange in (Exchange(house, f"/audio_sessions/{session}/live"), project_stream(house)):
        await exchange.until(lambda body: body.count(b": still here\n\n") >= 2)
        assert names(exchange) == ["session"]
        await over(exchange)


async def test_stream_without_events_sends_heartbeats_despite_chunks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.05)
    session = await opened(house)
    exchange = Exchange(house, f"/audio_sessions/{session}/live?events=sound.started")
    await exchange.until(lambda body: b": still here\n\n" in body)
    for number in range(20):
        await house.sessions.submit(session, Chunk("c", number, silence(0.5)))
        await asyncio.sleep(0.02)
    assert exchange.body.count(b": still here\n\n") > 3
    assert names(exchange) == []
    await over(exchange)


async def test_moved_session_is_reported(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await opened(house)
    one, all_of_them = Exchange(house, f"/audio_sessions/{session}/live"), project_stream(house)
    for exchange in (one, all_of_them):
        await exchange.until(lambda body: b"event: session" in body)
    monkeypatch.setattr(house.sessions, "view", mock.Mock(side_effect=Unavailable("another node has it")))
    house.sessions.covered = Coverage(frozenset(), 1, frozenset())
    house.sessions.followers.wake(session, lost=True)
    await one.end()
    assert events(one)[-1] == ("moved", {"session_id": session})
    await all_of_them.until(lambda body: b"event: moved" in body and b"event: missing" in body)
    assert ("missing", {"partitions": 1, "of": 1}) in events(all_of_them)
    await over(all_of_them)


async def test_shutdown_sends_error_event(house: House) -> None:
    exchange = project_stream(house)
    await until(lambda: house.sessions.listeners.get("project"))
    house.sessions.listeners.wake("project", lost=True)
    await exchange.end()
    assert names(exchange) == ["error"]
    assert exchange.whole


async def test_other_projects_are_not_streamed(house: House) -> None:
    foreign = await opened(house, "others")
    foreign_job = house.jobs.create(SOUND, project="others")
    exchange = Exchange(house, f"/api/v1/live?strips={foreign}", x_api_key=KEY)
    await until(lambda: house.sessions.listeners.get("project"))
    await put(house, foreign, 0, 2.0)
    house.jobs.perform(foreign_job, Service.SOUND)
    house.jobs.command(foreign_job, Removed("r"))
    await house.sessions.submit(foreign, Deleted("d"))
    await put(house, await opened(house), 0, 1.0)
    own_job = house.jobs.create(SOUND)
    await exchange.until(lambda body: b"event: window" in body and own_job.encode() in body)
    assert foreign.encode() not in exchange.body
    assert foreign_job.encode() not in exchange.body
    await over(exchange)


async def test_session_joined_midway_includes_recent_windows(house: House) -> None:
    session = await opened(house)
    await put(house, session, 0, 40.0)
    house.sessions.sessions[session].head = msgspec.structs.replace(
        house.sessions.sessions[session].head, state="readonly"
    )
    exchange = project_stream(house)
    await until(lambda: house.sessions.listeners.get("project"))
    house.sessions.sessions[session].head = msgspec.structs.replace(
        house.sessions.sessions[session].head, state="writable"
    )
    await put(house, session, 1, 0.5)
    await exchange.until(lambda body: b"event: window" in body)
    [first] = [data["next_window"] for name, data in events(exchange) if name == "session"]
    assert windows(exchange)[0] == first
    assert 79 - first <= 65
    await over(exchange)


async def test_stream_merges_all_nodes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    other = House()
    async with served(other, house) as url:
        other.sessions.covered = Coverage(frozenset({1}), 3, frozenset({"http://never.asked"}))
        house.sessions.covered = Coverage(frozenset({0}), 3, frozenset({url}))
        here, there = await opened(house), await opened(other)
        job_here, job_there = house.jobs.create(SOUND), other.jobs.create(SOUND)
        exchange = project_stream(house)
        await exchange.until(lambda body: body.count(b"event: session") == 2 and b"event: missing" in body)
        await exchange.until(lambda body: job_here.encode() in body and job_there.encode() in body)
        await put(house, here, 0, 1.5)
        await put(other, there, 0, 1.5)
        other.jobs.perform(job_there, Service.SOUND)
        await exchange.until(lambda body: body.count(b"event: window") == 4 and b"completed" in body)
        assert {data["session_id"] for name, data in events(exchange) if name == "window"} == {here, there}
        assert jobs_told(exchange, job_there) == [("accepted", 0), ("completed", 1)]
        assert b"event: part" not in exchange.body, "that is between nodes"
        await until(lambda: ("missing", {"partitions": 1, "of": 3}) in events(exchange))
        assert not other.sessions.listeners.get("others")
        monkeypatch.setattr(house.jobs, "view", mock.Mock(side_effect=Unavailable("another node has it")))
        house.jobs.perform(job_here, Service.SOUND)
        await asyncio.sleep(0.05)
        assert jobs_told(exchange, job_here) == [("accepted", 0)]
        await over(exchange)
        await until(lambda: not any(other.sessions.listeners["project"]))


async def test_forwarded_stream_covers_only_this_node(house: House) -> None:
    house.sessions.covered = Coverage(frozenset({2}), 4, frozenset({"http://never.asked"}))
    exchange = project_stream(house, x_earshot_forwarded="1")
    await exchange.until(bool)
    assert events(exchange)[0] == ("part", {"partitions": [2]})
    await over(exchange)


async def test_alarms_are_streamed_as_they_are_made_and_change(house: House) -> None:
    exchange = project_stream(house)
    await exchange.until(bool)
    (listener,) = house.sessions.listeners["project"]
    made = msgspec.structs.replace(ALARM, deliveries=())
    listener.note_alarm(made)
    await until(lambda: [name for name, _ in events(exchange)].count("alarm") == 1)
    listener.note_alarm(made)
    listener.note_alarm(ALARM)
    await until(lambda: [name for name, _ in events(exchange)].count("alarm") == 2)
    first, second = (data for name, data in events(exchange) if name == "alarm")
    assert (first["id"], first["deliveries"]) == (second["id"], [])
    assert second["deliveries"][0]["state"] == "delivered"
    await over(exchange)


def told(exchange: Exchange, session: str) -> list[tuple[str, str]]:
    """Return a session's sound events in a project's stream, with cursors."""
    sounds = [(name, data) for name, data in events(exchange) if name.startswith("sound.")]
    return [(name, data["cursor"]) for name, data in sounds if data["session_id"] == session]


async def test_sound_events_of_all_sessions_are_streamed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sounds that began before the listener connected, however early, start with its stream."""
    monkeypatch.setattr(project_live, "LOOK_BACKS", 1)
    monkeypatch.setattr(socket_events, "LOOK_BACK", 4)
    one, other = await opened(house), await opened(house)
    await put(house, one, 0, 20.0)
    exchange = project_stream(house)
    await until(lambda: told(exchange, one))
    on = told(exchange, one)
    await house.sessions.submit(one, Chunk("c", 1, silence(2.5)))
    await put(house, other, 0, 1.5)
    await house.sessions.submit(other, Sealed("s"))
    await exchange.until(lambda body: b"event: ended" in body and len(told(exchange, one)) > len(on))
    whole = Exchange(house, f"/audio_sessions/{one}/live?events=sound.started,sound.ended&after=start")
    await whole.until(lambda body: body.count(b"event: sound.ended") == body.count(b"event: sound.started") > 0)
    heard = told(exchange, one)[len(on) :]
    assert {name for name, _ in on} == {"sound.started"}
    assert [(name, data["cursor"]) for name, data in events(whole)][-len(heard) :] == heard
    assert heard[-1][0] == "sound.ended"
    assert told(exchange, other)[0][0] == "sound.started"
    windows = [data for name, data in events(exchange) if name == "window"]
    assert all(data["top"] for data in windows)
    assert any("level" in data for data in windows)
    await over(exchange, whole)


async def test_sessions_of_a_partition_that_arrives_are_met_without_news(house: House) -> None:
    """Otherwise nobody would tell that they are deleted."""
    house.sessions.covered = Coverage(frozenset(), 1, frozenset())
    exchange = project_stream(house)
    await until(lambda: house.sessions.listeners.get("project"))
    session = new_id()
    opening = Opened("o", "stream", RAW, "project", 1000, 500)
    house.sessions.sessions[session] = Session(opening, SessionHead("stream", None, 0, 0), 0)
    house.sessions.covered = Coverage(frozenset({0}), 1, frozenset())
    await exchange.until(lambda body: b"event: session" in body)
    await house.sessions.submit(session, Deleted("d"))
    await exchange.until(lambda body: b"event: deleted" in body)
    assert [data["session_id"] for _, data in events(exchange) if "session_id" in data] == [session, session]
    await over(exchange)


async def test_project_stream_tells_once_why_session_failed(house: House) -> None:
    session = await opened(house, content_type="audio/wav")
    exchange = project_stream(house)
    await exchange.until(lambda body: b"event: session" in body)
    await house.sessions.submit(session, Chunk("c", 0, b"no WAV"))
    await exchange.until(lambda body: b"event: ended" in body)
    states = [data for name, data in events(exchange) if name == "session"]
    assert [(data["session_id"], data["state"]) for data in states] == [(session, "writable"), (session, "readonly")]
    await over(exchange)


def jobs_told(exchange: Exchange, job: str) -> list[tuple[str, float]]:
    """Return status and progress of each event of a job."""
    told = [data for name, data in events(exchange) if name == "job" and data["job_id"] == job]
    assert [int(data["cursor"]) for data in told] == sorted({int(data["cursor"]) for data in told}), "each once"
    return [(data["status"], data["progress"]) for data in told]


async def test_jobs_are_reported_until_removal(house: House) -> None:
    before, done = house.jobs.create(BOTH), house.jobs.create(SOUND)
    house.jobs.perform(done, Service.SOUND, sounds("Siren"))
    exchange = project_stream(house)
    await exchange.until(lambda body: before.encode() in body)
    assert jobs_told(exchange, before) == [("accepted", 0)]
    house.jobs.perform(before, Service.SOUND, sounds("Siren"))
    await exchange.until(lambda body: b"processing" in body)
    [*_, (_, told)] = events(exchange)
    assert told["services"] == {
        "sound_event_detection": {"status": "success", "progress": 1},
        "speech_analysis": {"status": "pending", "progress": 0},
    }
    stream = Exchange(house, f"/api/v1/jobs/{before}/stream", last_event_id=told["cursor"])
    house.jobs.perform(before, Service.SPEECH, transcript())
    await exchange.until(lambda body: b"completed" in body)
    assert jobs_told(exchange, before) == [("accepted", 0), ("processing", 0.5), ("completed", 1)]
    assert names(await stream.end())[:2] == ["partial_result", "progress"], "what came after its cursor"
    # Invisible changes: bills, and the end of the kept audio of an earlier job.
    house.jobs.conclude(before, Billed((Service.SOUND, Service.SPEECH)))
    house.jobs.command(done, Overdue("o", house.jobs.jobs[done].head.command, 0))
    quick_one = house.jobs.create(SOUND)
    house.jobs.jobs[quick_one].head = msgspec.structs.replace(
        house.jobs.jobs[quick_one].head, created=int(time.time() * 1000) + 1000
    )
    house.jobs.perform(quick_one, Service.SOUND)
    await exchange.until(lambda body: quick_one.encode() in body)
    assert jobs_told(exchange, quick_one) == [("completed", 1)]
    assert jobs_told(exchange, done) == []
    house.jobs.command(quick_one, Removed("r"))
    await exchange.until(lambda body: b"job.removed" in body)
    assert events(exchange)[-1] == ("job.removed", {"job_id": quick_one})
    assert len(jobs_told(exchange, before)) == 3
    await over(exchange)


async def test_changes_wait_while_nothing_may_be_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_live, "POLL_SECONDS", 0.01)
    job, view = house.jobs.create(SOUND), house.jobs.view
    exchange = project_stream(house)
    await exchange.until(lambda body: job.encode() in body)
    monkeypatch.setattr(house.jobs, "view", mock.Mock(side_effect=Unavailable("what is here may be outdated")))
    house.sessions.covered = Coverage(frozenset(), 1, frozenset())
    house.jobs.perform(job, Service.SOUND)
    await exchange.until(lambda body: b"event: missing" in body)
    assert len(jobs_told(exchange, job)) == 1
    monkeypatch.setattr(house.jobs, "view", view)
    house.sessions.covered = Coverage(frozenset({0}), 1, frozenset())
    await exchange.until(lambda body: b"completed" in body)
    await over(exchange)
