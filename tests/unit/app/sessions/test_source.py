"""What clients tell of a source: times of capture, and what happened to it."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.contract.api import b64, tone, wav
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import Exchange
from tests.unit.app.sessions.sockets import END, HALF, Line, greeted, of_type, opened, path_of, place, refused
from tests.unit.app.sessions.test_raw_audio import STEREO, make
from tests.waiting import turn, until
from topics.errors import Unavailable
from topics.keys import new_id
from topics.sessions import commands
from topics.sessions.capture import MOST_NOTES
from topics.sessions.records import Chunk, Opened, Renamed, Sealed, SourceNoted

UTC_TIME = "2026-11-30T08:00:00Z"
NOW = datetime.now(UTC).replace(microsecond=123_000)


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def text(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


def captured(house: House) -> list[int]:
    return [one.captured for one in house.sessions.appended if isinstance(one, Chunk)]


def notes(house: House) -> list[SourceNoted]:
    return [one for one in house.sessions.appended if isinstance(one, SourceNoted)]


async def tell(line: Line, *messages: str | bytes) -> None:
    for message in messages:
        await line.socket.send(message)


# --- times of capture -----------------------------------------------------------------------------------------------


async def test_time_belongs_to_next_message_alone(house: House) -> None:
    first, second = ago(seconds=9), ago(seconds=3)
    async with greeted(house) as (_, line):
        await tell(line, HALF, text("captured", time=ago(minutes=1)), text("captured", time=first, x=1), HALF, HALF)
        await tell(line, text("captured", time=second), HALF, text("captured", time=first), END)
        assert not of_type(await line.rest(), "warning")
        assert await line.code() == 1000
    assert captured(house) == [0, ms(first), 0, ms(second)]


async def test_time_within_a_sample_is_that_of_the_next_sample(house: House) -> None:
    """The rest of a sample belongs to the message before."""
    session = await opened(house, content_type=STEREO)
    at = ago(seconds=5)
    async with place(house) as here, here.greeted(path_of(session)) as line:
        await tell(line, bytes(64_002), text("captured", time=at), bytes(64_002))
        await until(lambda: len(house.sessions.sessions[session].chunks) == 2)
    assert captured(house) == [0, ms(at)]
    anchor = house.sessions.sessions[session].head.anchor
    assert anchor is not None
    assert (anchor.position_ms, anchor.at_ms, anchor.told) == (1000, ms(at), True)


@pytest.mark.parametrize(
    ("told", "spooled", "taken"),
    [
        (timedelta(minutes=59), False, True),
        (timedelta(minutes=61), False, False),
        (timedelta(minutes=-59), True, True),
        (timedelta(minutes=-61), True, False),
        (timedelta(days=6.9), True, True),
        (timedelta(days=7.1), True, False),
        ("1969-01-01T00:00:00Z", True, False),
        ("0001-01-01T00:00:00+14:00", False, False),
        ("2999-01-01T00:00:00.5-08:00", False, False),
    ],
    ids=range(9),
)
async def test_time_far_off_is_left_out_with_a_warning(
    house: House, told: str | timedelta, spooled: bool, taken: bool
) -> None:
    if isinstance(told, timedelta):
        told = (datetime.now(UTC) - told).isoformat()
    async with greeted(house) as (_, line):
        await tell(line, text("captured", time=told, spooled=spooled), HALF, END)
        warnings = of_type(await line.rest(), "warning")
        assert await line.code() == 1000
    assert captured(house) == [ms(told) if taken else 0]
    assert [("clock" in one["warning"]) for one in warnings] == [True] * (not taken)


@pytest.mark.parametrize(
    "message",
    [
        text("captured"),
        text("captured", time=7),
        text("captured", time="noon"),
        text("captured", time="2026-11-30T08:00:00"),
        text("captured", time="2026-11-30"),
        text("captured", time=ago(), spooled="yes"),
        text("source"),
        text("source", event="source.gone"),
        text("source", event="source.lost", time="soon"),
        text("source", event="source.lost", reason="x" * 201),
        text("source", event="source.lost", reason="a\nb"),
        text("source", event="source.lost", reason="a\n"),
        text("source", event="source.lost", reason="a\x9bb"),
        text("source", event="source.lost", reason=["x"]),
    ],
    ids=range(14),
)
async def test_bad_message_is_refused(house: House, message: str) -> None:
    async with greeted(house) as (_, line):
        await line.socket.send(message)
        await refused(line, 4400, 400)
    assert not notes(house)


async def test_listener_tells_nothing(house: House) -> None:
    async with greeted(house, "?mode=listen") as (_, line):
        await line.socket.send(text("source", event="source.lost"))
        await refused(line, 4400, 400)


async def test_encoded_audio_takes_no_time(house: House) -> None:
    session = await opened(house, content_type="audio/wav")
    async with place(house) as here, here.greeted(path_of(session)) as line:
        await tell(line, wav(tone(1)), text("captured", time=ago()))
        assert "raw PCM" in (await refused(line, 4400, 400))["error"]


# --- notes ----------------------------------------------------------------------------------------------------------


async def test_notes_keep_their_place_between_chunks_and_are_counted(house: House) -> None:
    at = ago(seconds=4)
    async with place(house) as here:
        session = await opened(house)
        async with here.greeted(path_of(session)) as line:
            await tell(line, HALF, text("source", event="source.lost", time=at, reason="no answer \N{BELL}"))
            await tell(line, HALF, text("source", event="source.back", reason=None), HALF)
            while (await line.next_of("ack")).get("notes") != 2:
                pass
        async with here.line(path_of(session)) as line:
            assert (await line.next())["notes"] == 2
    kinds = [type(one).__name__ for one in house.sessions.appended[1:]]
    assert kinds == ["Chunk", "SourceNoted", "Chunk", "SourceNoted", "Chunk"]
    lost, back = notes(house)
    assert (lost.event, lost.at, lost.reason) == ("source.lost", ms(at), "no answer \N{BELL}")
    assert (back.event, back.at, back.reason) == ("source.back", 0, None)
    source = house.sessions.sessions[session].head.source
    assert source is not None
    assert (source.event, source.notes, source.sent) == ("source.back", 2, 2)


async def test_note_waits_for_room_in_its_place(house: House) -> None:
    async with greeted(house) as (session, line):
        house.sessions.failure = Unavailable("the queue is full")
        await tell(line, HALF, text("source", event="source.silent"), HALF)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.next(), 0.1)
        house.sessions.failure = None
        await until(lambda: len(house.sessions.sessions[session].chunks) == 2)
    assert [type(one).__name__ for one in house.sessions.appended[1:]] == ["Chunk", "SourceNoted", "Chunk"]


async def test_note_that_a_session_does_not_take_is_a_warning(house: House) -> None:
    async with greeted(house) as (session, line):
        for _ in range(MOST_NOTES // 2):
            await house.sessions.submit(session, SourceNoted("n", "source.silent"))
        await tell(line, text("source", event="source.lost"))
        assert f"{MOST_NOTES} notes an hour" in (await line.next_of("warning"))["warning"]
        await house.sessions.submit(session, Sealed("s"))
        await tell(line, text("source", event="source.lost"))
        said = await line.rest()
        assert all("readonly" in one["warning"] for one in of_type(said, "warning"))
        assert await line.code() == 1000


async def test_time_of_note_far_off_is_left_out(house: House) -> None:
    async with greeted(house) as (_, line):
        await tell(line, text("source", event="source.lost", time=ago(hours=2)))
        assert "clock" in (await line.next_of("warning"))["warning"]
        await tell(line, text("source", event="source.lost", time=ago(hours=2), spooled=True))
        await until(lambda: len(notes(house)) == 2)
    assert [one.at for one in notes(house)] == [0, ms(ago(hours=2))]


async def test_file_has_no_source(house: House) -> None:
    session = new_id()
    await house.sessions.submit(session, Opened("o", "file", "audio/wav", "project", 1000, 500))
    async with place(house) as here, here.greeted(path_of(session)) as line:
        await line.socket.send(text("source", event="source.lost"))
        assert (await refused(line, 4400, 400))["error"] == commands.NO_SOURCE.error


# --- requests -------------------------------------------------------------------------------------------------------


def put(http: TestClient, session: str, number: int, captured_at: str) -> tuple[int, str, str]:
    answer = http.put(
        f"/audio_sessions/{session}/chunks/{number}",
        json={"data": b64(HALF)},
        headers={"Earshot-Captured-At": captured_at},
    )
    return answer.status_code, answer.json().get("error", ""), answer.headers.get("earshot-warning", "")


def test_chunk_of_a_request_has_a_time(http: TestClient, house: House) -> None:
    session = make(http, "audio/x-raw; rate=16000; format=s16le")
    near, far = ago(seconds=5), ago(days=3)
    assert put(http, session, 0, near) == (200, "", "")
    status, error, warning = put(http, session, 1, far)
    assert (status, error) == (200, "")
    assert "clock" in warning
    assert put(http, session, 2, f"{far}; spooled") == (200, "", "")
    assert captured(house) == [ms(near), 0, ms(far)]


@pytest.mark.parametrize("value", ["noon", "2026-11-30T08:00:00", f"{UTC_TIME}; late", f"{UTC_TIME};spooled;"])
def test_bad_header_is_refused(http: TestClient, house: House, value: str) -> None:
    session = make(http, "audio/x-raw; rate=16000; format=s16le")
    status, error, _ = put(http, session, 0, value)
    assert status == 400
    assert error.startswith("Earshot-Captured-At: ")


def test_header_needs_raw_audio(http: TestClient, house: House) -> None:
    status, error, _ = put(http, make(http, "audio/wav"), 0, ago())
    assert status == 400
    assert "raw PCM" in error
    assert not captured(house)


# --- events ---------------------------------------------------------------------------------------------------------

EVENTS = "source.lost,source.back,source.silent,window,sound.started,sound.ended"


async def test_events_have_times_of_capture_and_notes_between_windows(house: House) -> None:
    first = NOW - timedelta(seconds=60)
    async with greeted(house, f"?events={EVENTS}") as (_, line):
        await tell(line, text("captured", time=first.isoformat()), tone(1))
        window = await line.next_of("window")
        assert ms(window["captured_at"]) == ms(first.isoformat())
        await tell(line, text("source", event="source.lost", time=ago(seconds=9), reason="no answer"))
        lost = await line.next_of("source.lost")
        assert (ms(lost["time"]), lost["told"], lost["reason"]) == (ms(ago(seconds=9)), True, "no answer")
        await tell(line, text("source", event="source.back"))
        assert "reason" not in await line.next_of("source.back")
        at = first + timedelta(seconds=30)
        await tell(line, text("captured", time=at.isoformat()), tone(1), END)
        rest = await line.rest()
    later = [(one["window"], ms(one["captured_at"])) for one in of_type(rest, "window")]
    begun = ms(first.isoformat())
    assert later == [(1, begun + 500), (2, begun + 30_000)]
    ended = of_type(rest, "sound.ended")
    assert {ms(one["captured_at"]) - begun for one in ended} <= {0, 500, 30_000}
    assert len(ended) > 1


async def test_reader_continues_after_a_note(house: House) -> None:
    """Several come before one window, and some of them were sent."""
    session = await opened(house)
    for number in range(4):
        await house.sessions.submit(session, SourceNoted("n", "source.silent", 1, str(number)))
    async with place(house) as here:
        async with here.greeted(path_of(session, "?events=source.silent&after=start")) as line:
            cursors = [(await line.next())["cursor"] for _ in range(4)]
        for number, after in enumerate(cursors):
            query = f"?events=window,source.silent,source.lost&after={after}&mode=listen"
            async with here.greeted(path_of(session, query)) as line:
                found = [(await line.next())["reason"] for _ in range(3 - number)]
                assert found == [str(one) for one in range(number + 1, 4)]
        async with here.greeted(path_of(session, "?events=source.silent,source.lost")) as line:
            await tell(line, text("source", event="source.lost", reason="new"))
            said = [await line.next() for _ in range(2)]
            assert {one.get("reason") for one in said} == {"new", None}, "earlier ones are not news"
    assert len(set(cursors)) == 4


async def test_streams_of_session_and_project_tell_notes(house: House) -> None:
    session = await opened(house)
    await house.sessions.submit(session, SourceNoted("n", "source.silent", 1, "before"))
    await turn()
    alone = Exchange(house, f"/audio_sessions/{session}/live?events=source.silent,source.lost")
    whole = Exchange(house, "/api/v1/live", x_api_key=KEY)
    await until(lambda: b"event: session" in whole.body and house.sessions.followers[session])
    await house.sessions.submit(session, SourceNoted("n", "source.lost", 1796025600123, "gone"))
    for stream in (alone, whole):
        await stream.until(lambda body: b"source.lost" in body)
        assert b'"reason":"gone"' in stream.body
        assert b"before" not in stream.body
        assert b"2026-11-30T08:00:00.123Z" in stream.body
        await stream.leave()
    assert session.encode() in whole.body[whole.body.index(b"event: source.lost") :]


def test_list_tells_state_of_source(http: TestClient, house: House) -> None:
    session = make(http, "audio/wav", file_name="door", metadata={"room": "hall"})

    def entry(*commands: SourceNoted | Sealed) -> tuple[Any, Any]:
        for command in commands:
            assert http.portal is not None
            http.portal.call(house.sessions.submit, session, command)
        (found,) = http.get("/audio_sessions/").json()["sessions"]
        assert found["file_name"] == "door"
        return found["metadata"], found.get("source")

    assert entry() == ({"room": "hall"}, None)
    at = 1796025600123
    assert entry(SourceNoted("n", "source.lost", at))[1] == {"state": "lost", "since": "2026-11-30T08:00:00.123Z"}
    assert entry(SourceNoted("n", "source.silent", at))[1]["state"] == "silent"
    assert entry(SourceNoted("n", "source.back", at))[1] is None
    assert entry(SourceNoted("n", "source.lost", at), Sealed("s"))[1] is None, "its end is no loss"


# --- names ----------------------------------------------------------------------------------------------------------


def test_session_gets_another_name(http: TestClient) -> None:
    session = make(http, "audio/wav", file_name="door", metadata={"room": "hall"})
    path = f"/audio_sessions/{session}"

    def named(**body: Any) -> tuple[str, Any]:
        assert http.patch(path, json=body).status_code == 204
        (found,) = http.get("/audio_sessions/").json()["sessions"]
        return found["file_name"], found.get("metadata")

    assert named(make_readonly=False) == ("door", {"room": "hall"})
    assert named(file_name="gate") == ("gate", {"room": "hall"})
    assert named(metadata={"floor": "0"}, file_name=None) == ("gate", {"floor": "0"})
    assert named(make_readonly=True, metadata={}) == ("gate", None)
    assert named(file_name="") == ("", None), "also once it is readonly"
    assert http.delete(path).status_code == 204
    assert http.patch(path, json={"file_name": "x"}).status_code == 404


@pytest.mark.parametrize(
    "body", [{"file_name": "x" * 1025}, {"file_name": 7}, {"metadata": {"a": 1}}, {"metadata": {"a": "x" * 4096}}]
)
def test_bad_name_changes_nothing(http: TestClient, house: House, body: dict[str, Any]) -> None:
    session = make(http, "audio/wav", file_name="door")
    answer = http.patch(f"/audio_sessions/{session}", json={**body, "make_readonly": True})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(next(iter(body)))
    assert house.sessions.sessions[session].head.state == "writable"


async def test_project_stream_tells_new_name(house: House) -> None:
    session = await opened(house)
    whole = Exchange(house, "/api/v1/live", x_api_key=KEY)
    await whole.until(lambda body: b"event: session" in body)
    await house.sessions.submit(session, Renamed("r", "gate"))
    await whole.until(lambda body: b'"file_name":"gate"' in body)
    await whole.leave()
