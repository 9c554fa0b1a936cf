"""The event streams of jobs, sessions and projects: whole events once, across network faults."""

import itertools
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshot_client import JobDeleted, JobEvent, JobNotFound, LiveEvent, ServiceUnreachable, _calls, _event_stream
from earshot_client._calls import LONGEST_PAUSE, PATIENCE, RETRIES, Answer
from earshot_client._event_stream import EventStream
from earshot_client._job_stream import JobStream
from earshot_client._live_stream import LiveStream

STREAM = (
    b": ping\n\n"
    b'event: progress\nid: 4\ndata: {"progress": 0.25}\n\n'
    b"event:partial_result\r\ndata:{}\r\n\r\n"
    b"retry: 10\n\n"
    b"data: one\ndata: two\nid: 6\nnonsense\n\n"
    b'event: completed\nid: 7\ndata: {"metadata": {"warnings": ["\xe2\x80\xa8"]}}\n\n'
    b"event: progress\ndata: {}\n\n"
)
EVENTS = [
    JobEvent("progress", b'{"progress": 0.25}', "4"),
    JobEvent("partial_result", b"{}", "4"),
    JobEvent("message", b"one\ntwo", "6"),
    JobEvent("completed", b'{"metadata": {"warnings": ["\xe2\x80\xa8"]}}', "7"),
]


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "JITTER", 0.0)


@given(st.sets(st.integers(1, len(STREAM) - 1), max_size=9))
def test_events_do_not_depend_on_chunk_boundaries(cuts: set[int]) -> None:
    ends = [*sorted(cuts), len(STREAM)]
    stream = JobStream("j")
    events = [
        event
        for start, end in itertools.pairwise([0, *ends])
        if not stream.ended()
        for event in stream.feed(STREAM[start:end])
    ]
    assert events == EVENTS
    assert stream.ended()
    assert events[0].progress.progress == 0.25
    assert events[-1].result.metadata == {"warnings": ["\u2028"]}


def test_partial_event_is_received_again_after_reconnect() -> None:
    stream = JobStream("j", "3")
    assert stream.request().headers["Last-Event-ID"] == "3"
    assert list(stream.feed(b"id: 4\ndata: a\n\nid: 5\ndata: b\n")) == [JobEvent("message", b"a", "4")]
    stream.disconnected("reset")
    call = stream.request()
    assert (call.path, call.headers["Last-Event-ID"]) == ("/api/v1/jobs/j/stream", "4")
    assert list(stream.feed(b"\ndata: b\n\n")) == [JobEvent("message", b"b", "4")]


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("stream", [LiveStream.of_project("key", None), JobStream("j")])
def test_backoff_resets_after_event_and_finally_gives_up(stream: EventStream[Any]) -> None:
    stream.patience = 0.0
    assert [stream.pause(), stream.pause()] == [*RETRIES[:2]]
    list(stream.feed(b"data: a\n\n"))
    stream.disconnected("the line is dead")
    assert [stream.pause() for _ in RETRIES] == [*RETRIES]
    with pytest.raises(ServiceUnreachable, match="the line is dead"):
        stream.pause()


@pytest.mark.usefixtures("no_jitter")
def test_wait_for_job_outlasts_slow_restart(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now, waited, stream = 0.0, [], JobStream("j")
    monkeypatch.setattr(_event_stream, "time", SimpleNamespace(monotonic=lambda: now))
    list(stream.feed(b'data: a\n\nevent: error\ndata: {"error": "connect again with Last-Event-ID"}\n\n'))
    while now < PATIENCE:
        waited.append(stream.pause())
        now += waited[-1]
        stream.request()
        stream.disconnected("connection refused")
    with pytest.raises(ServiceUnreachable) as raised:
        stream.pause()
    assert waited == [*RETRIES, *[RETRIES[-1]] * (len(waited) - len(RETRIES))]
    assert str(raised.value) == "connection refused", "not what the node said before it stopped"
    assert [record.getMessage() for record in caplog.records] == [
        "the service does not answer (connection refused); trying for 293 s more"
    ]


def test_error_event_ends_connection_and_reports_removed_job() -> None:
    error = b'event: error\ndata: {"error": "the job was removed"}\n\n'
    stream = JobStream("j")
    assert list(stream.feed(error)) == []
    assert not stream.ended()
    stream.request()
    assert list(stream.feed(b"id: 4\ndata: a\n\n" + error)) == [JobEvent("message", b"a", "4")]
    assert stream.request().headers["Last-Event-ID"] == "4"
    with pytest.raises(JobDeleted, match="the job was removed"):
        stream.refused(Answer(404, b'{"error": "Not Found"}'))
    stream.patience = 0.0
    for _ in RETRIES:
        stream.pause()
    with pytest.raises(ServiceUnreachable, match="the job was removed"):
        stream.pause()


@pytest.mark.parametrize(("seconds", "pauses"), [(10.0, [RETRIES[0]] * 7), (9.0, None)])
@pytest.mark.usefixtures("no_jitter")
def test_connection_that_lasts_resets_backoff(
    seconds: float, pauses: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that cuts every stream: heartbeats count as life."""
    now = 0.0
    monkeypatch.setattr(_event_stream, "time", SimpleNamespace(monotonic=lambda: now))
    stream, waited = JobStream("j"), []
    stream.patience = 0.0
    with nullcontext() if pauses else pytest.raises(ServiceUnreachable):
        for _ in range(7):
            stream.request()
            list(stream.feed(b": ping\n\n"))
            now += seconds
            waited.append(stream.pause())
    assert waited == (pauses or [*RETRIES])


@pytest.mark.usefixtures("no_jitter")
def test_stream_honours_retry_after() -> None:
    stream = JobStream("j")
    stream.refused(Answer(503, retry_after=7))
    assert stream.pause() == 7
    stream.refused(Answer(503, retry_after=7000))
    assert stream.pause() == LONGEST_PAUSE
    with pytest.raises(JobNotFound, match="no such job"):
        stream.refused(Answer(404, b'{"error": "no such job"}'))


@pytest.mark.parametrize("piece", [b"x" * 60, b"data: " + b"x" * 60 + b"\n"])
def test_oversized_event_raises(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(_event_stream, "LONGEST_EVENT", 100)
    stream = JobStream("j")
    for _ in range(5):
        list(stream.feed(b"data: 0123456789\n\n" * 5))
    list(stream.feed(piece))
    with pytest.raises(ServiceUnreachable, match="longer than 100 bytes"):
        list(stream.feed(piece))


def test_invalid_result_raises() -> None:
    with pytest.raises(ServiceUnreachable, match="is not an Earshot service"):
        _ = JobEvent("completed", b"[]").result


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (JobEvent("x", b"{}"), {"progress", "result", "message"}),
        (LiveEvent("x", b"{}"), {"window", "job", "alarm"}),
    ],
    ids=["job", "live"],
)
def test_value_of_another_kind_of_event_raises(event: JobEvent | LiveEvent, names: set[str]) -> None:
    fields = {*event.__struct_fields__, "session_id", "job_id"}
    assert names == {name for name in dir(type(event)) if not name.startswith("_")} - fields
    for name in names:
        with pytest.raises(ValueError, match="the event is of the kind x, not "):
            getattr(event, name)


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


@pytest.mark.usefixtures("no_jitter")
def test_project_stream_reconnects_after_error_and_finally_reports_it() -> None:
    stream = LiveStream.of_project("k", "s")
    call = stream.request()
    assert (call.path, call.query, call.headers["X-Api-Key"]) == ("/api/v1/live", {"strips": "s"}, "k")
    assert list(stream.feed(b'event: error\ndata: {"error": "this node is stopping"}\n\n')) == []
    assert not stream.ended()
    assert [stream.pause() for _ in RETRIES] == [*RETRIES], "it never opened"
    with pytest.raises(ServiceUnreachable, match=r"^this node is stopping$"):
        stream.pause()
