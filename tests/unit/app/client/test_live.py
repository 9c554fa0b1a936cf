"""The client as a listener at the service's edge: each window once, across breaks; a day by hour."""

import pytest

from earshot_client import Client, DeadlineExceeded, SessionNotFound, SessionOptions, WrongKey
from earshot_client._live_stream import LiveStream
from tests.contract.api import tone
from tests.unit.app.client.conftest import Shell
from tests.unit.app.conftest import KEY, House
from tests.unit.app.jobs.conftest import SOUND

pytestmark = pytest.mark.slow

PCM = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", file_name="yard")


def heard(client: Client) -> str:
    session = client.create_session(PCM).id
    for number in range(6):
        client.put_chunk(session, number, tone(0.5))
    client.seal_session(session)
    return session


def test_session_stream_runs_to_end(url: str, shell: Shell) -> None:
    with shell(url, KEY) as client:
        session = heard(client)
        events = list(client.live(session, 0))
        assert [event.kind for event in events] == ["session", *["window"] * 5, "ended"]
        windows = [event.window for event in events if event.kind == "window"]
        assert [(one.window, one.start, one.session_id) for one in windows] == [
            (number, number / 2, session) for number in range(5)
        ]
        assert windows[0].level is not None
        assert windows[0].level.rms == -20.5
        assert windows[2].strip is not None
        assert (windows[2].strip.start, windows[2].strip.columns) == (1.5, bytes([2] * 640))
        assert [one.name for one in windows[0].top[:2]] == [one.name for one in windows[0].sounds]
        assert events[0].session_id == session
        assert [event.window.window for event in client.live(session, -2) if event.kind == "window"] == [3, 4]


def test_project_stream_includes_new_session(url: str) -> None:
    with Client(url, KEY, sleep=lambda seconds: None) as client:
        events = client.project_live()
        session = client.create_session(PCM).id
        assert next(events).session_id == session
        client.put_chunk(session, 0, tone(1.0))
        assert next(event.window.window for event in events if event.kind == "window") == 0
        with pytest.raises(DeadlineExceeded):
            list(client.project_live(timeout=0.5))
    with Client(url, "nobody", sleep=lambda seconds: None) as client, pytest.raises(WrongKey):
        next(client.project_live())


def test_unknown_session_raises(url: str) -> None:
    with Client(url, KEY, sleep=lambda seconds: None) as client:
        with pytest.raises(SessionNotFound):
            next(client.live("0123456789abcdefghijABCD"))
        with pytest.raises(SessionNotFound):
            client.session_activity("0123456789abcdefghijABCD")


def test_activity_of_day(url: str, shell: Shell) -> None:
    with shell(url, KEY) as client:
        session = heard(client)
        day = client.list_sessions().entries[0].created_at
        assert day is not None
        one, whole = client.session_activity(session, day[:10]), client.project_activity(day[:10])
        assert (one.sessions, sum(one.analysed), one.tags) == (1, 2.5, whole.tags)
        assert client.project_activity("2020-01-01", 60).sessions == 0


def test_stream_resumes_after_session_moves() -> None:
    stream = LiveStream.of_session("key", "s", 3)
    assert stream.request().query == {"from": "3"}
    kinds = [event.kind for event in stream.feed(b"event: window\nid: 3\ndata: {}\n\nevent: moved\ndata: {}\n\n")]
    assert (kinds, stream.ended()) == (["window", "moved"], False)
    stream.disconnected("it moved")
    assert stream.pause() > 0
    assert stream.request().headers["Last-Event-ID"] == "3"
    assert [event.kind for event in stream.feed(b"event: deleted\ndata: {}\n\n")] == ["deleted"]
    assert stream.ended()


@pytest.mark.parametrize("first", [None, -3])
def test_stream_that_breaks_before_first_window_resumes_at_its_beginning(first: int | None) -> None:
    stream = LiveStream.of_session("key", "s", first)
    stream.request()
    [event] = stream.feed(b'event: session\ndata: {"session_id":"s","next_window":17}\n\n')
    assert event.session_id == "s"
    again = stream.request()
    assert again.query == {"from": "17"}
    assert "Last-Event-ID" not in again.headers


def test_project_stream_reconnects_after_error() -> None:
    stream = LiveStream.of_project("k", "s")
    call = stream.request()
    assert (call.path, call.query, call.headers["X-Api-Key"]) == ("/api/v1/live", {"strips": "s"}, "k")
    assert list(stream.feed(b'event: error\ndata: {"error":"elsewhere"}\n\n')) == []
    assert not stream.ended()


def test_project_stream_includes_jobs(house: House, url: str) -> None:
    job = house.jobs.create(SOUND)
    with Client(url, KEY) as client:
        event = next(client.project_live())
    assert (event.kind, event.job_id, event.session_id) == ("job", job, None)
    assert (event.job.status, event.job.services["sound_event_detection"].status) == ("accepted", "pending")
