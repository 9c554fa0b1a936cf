"""The flows, driven by hand: their calls, pauses, and limits; the runs of sounds in their events."""

import math
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import earshot_client as sdk
from earshot_client import _alarm_flows, _calls, _job_flows, _own_sound_flows, _session_flows, _speaker_flows
from earshot_client._calls import RETRIES, Answer, Call, Flow, Items, NoAnswer, Pause, Step, T

BUSY = Answer(503, b'{"error": "busy"}')
REFS = Answer(200, b'{"session_id": "s", "chunk_sequence": 4}')


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "JITTER", 0.0)


def driven(flow: Flow[T], *answers: Answer | NoAnswer) -> tuple[list[Step], T]:
    """Answer the calls of a flow in turn; return its steps and its result."""
    left = list(answers)
    steps: list[Step] = []
    reply: Answer | NoAnswer | None = None
    while True:
        try:
            step = flow.send(reply)
        except StopIteration as stop:
            assert left == []
            return steps, stop.value
        steps.append(step)
        reply = left.pop(0) if isinstance(step, Call) else None


def calls(steps: list[Step]) -> list[Call]:
    return [step for step in steps if isinstance(step, Call)]


def status(results: int, token: str | None = None, error: str | None = None) -> Answer:
    window = {"start_time": 0, "end_time": 1, "tags": [{"name": "Others", "probability": 0}]}
    page = {"offset": 0, "count": results, "total": results} | ({"next_token": token} if token else {})
    body = {"state": "readonly", "refs": {}, "inference": {"page": page, "results": [window] * results}}
    return Answer(200, msgspec.json.encode(body | ({"error": error} if error else {})))


def test_upload_retries_repeat_same_call() -> None:
    steps, number = driven(_session_flows.put_chunk("key", "s", 3, b"pcm"), NoAnswer("reset"), BUSY, REFS)
    first, pause, second, longer, third = steps
    assert first == second == third
    assert isinstance(first, Call)
    assert (first.method, first.path, first.body) == ("PUT", "/audio_sessions/s/chunks/3", b'{"data":"cGNt"}')
    assert (pause, longer) == (Pause(RETRIES[0]), Pause(RETRIES[1]))
    assert number == 4


def test_different_uploads_have_different_idempotency_keys() -> None:
    uploads = [("s", 0, b"a"), ("s", 1, b"a"), ("s", 0, b"b"), ("t", 0, b"a"), ("s", 10, b"a"), ("s", 1, b"0 a")]
    keys = {
        calls(driven(_session_flows.put_chunk("key", *upload), REFS)[0])[0].headers["Idempotency-Key"]
        for upload in uploads
    }
    assert len(keys) == len(uploads)


def test_pauses_have_jitter_but_never_end_before_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "JITTER", 0.25)
    busy = msgspec.structs.replace(BUSY, retry_after=2.0)
    steps, _ = driven(_session_flows.seal("key", "s"), *[busy] * 4, Answer(204))
    pauses = [step.seconds for step in steps if isinstance(step, Pause)]
    assert len(set(pauses)) == 4
    assert all(2.0 <= seconds <= 2.5 for seconds in pauses)


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (0.0, RETRIES[0]), (3600.0, 30.0)])
def test_retry_after_is_honoured_within_limits(asked: float, waited: float) -> None:
    steps, _ = driven(_session_flows.seal("key", "s"), msgspec.structs.replace(BUSY, retry_after=asked), Answer(204))
    assert steps[1] == Pause(waited)


def test_first_long_pause_of_busy_service_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    driven(_session_flows.seal("key", "s"), *[BUSY] * (len(RETRIES)), Answer(204))
    driven(_session_flows.seal("key", "s"), BUSY, BUSY, Answer(204))
    assert [record.getMessage() for record in caplog.records] == ["the service is busy (busy); trying again"]


def test_persistent_failure_raises() -> None:
    with pytest.raises(sdk.ServiceUnreachable, match="refused"):
        driven(_session_flows.status("key", "s", None), *[NoAnswer("refused")] * (len(RETRIES) + 1))
    with pytest.raises(sdk.RequestRefused, match="busy") as raised:
        driven(_session_flows.status("key", "s", None), *[BUSY] * (len(RETRIES) + 1))
    assert raised.value.status == 503


@pytest.mark.parametrize("answer", [NoAnswer("reset"), Answer(502), Answer(504), Answer(503, final=True)])
@pytest.mark.parametrize(
    "flow",
    [
        lambda: _session_flows.create("key", sdk.SessionOptions("stream", "audio/wav")),
        lambda: _session_flows.predict("key", "s", b"pcm", None),
        lambda: _speaker_flows.add_voice("key", "Anna", sdk.JobVoice("j", "SPEAKER_00")),
        lambda: _own_sound_flows.delete("key", "Kettle"),
    ],
)
def test_unrepeatable_call_is_not_retried_if_it_may_have_had_an_effect(
    flow: Callable[[], Flow[object]], answer: Answer | NoAnswer
) -> None:
    with pytest.raises((sdk.RequestRefused, sdk.ServiceUnreachable)) as raised:
        driven(flow(), answer)
    assert getattr(raised.value, "status", None) == getattr(answer, "status", None)


def test_upload_is_retried_while_the_write_may_still_succeed() -> None:
    steps, number = driven(_session_flows.put_chunk("key", "s", 3, b"pcm"), Answer(503, final=True), REFS)
    assert (len(calls(steps)), number) == (2, 4)


@pytest.mark.parametrize(("location", "named"), [("https://there/jobs/j", "https://there/jobs/j"), ("", "location")])
def test_redirection_is_no_success(location: str, named: str) -> None:
    with pytest.raises(sdk.ServiceUnreachable, match=named):
        driven(_job_flows.delete("key", "j"), Answer(308, location=location))


def test_session_creation_retries_when_busy() -> None:
    steps, session = driven(
        _session_flows.create("key", sdk.SessionOptions("file", "audio/wav", total_size=5)), BUSY, REFS
    )
    assert session.id == "s"
    first = calls(steps)[0]
    assert first.headers["X-Api-Key"] == "key"
    assert msgspec.json.decode(first.body) == {
        "type": "file",
        "content_type": "audio/wav",
        "default_sensitivity": 0,
        "tags_sensitivity": {},
        "total_size": 5,
    }


@pytest.mark.parametrize(
    "flow",
    [
        lambda: _alarm_flows.add_rule("key", sdk.AlarmRule(name="loud", when="loud", level=math.nan)),
        lambda: _session_flows.create("key", sdk.SessionOptions("file", "audio/wav", file_length=math.inf)),
    ],
)
def test_number_that_json_lacks_is_not_sent(flow: Callable[[], Flow[object]]) -> None:
    with pytest.raises(ValueError, match=r"^(nan|inf) is not a finite number$"):
        flow()


SEAL, SCORES = partial(_session_flows.seal, "key", "s"), partial(_job_flows.scores, "key", "j")


@pytest.mark.parametrize(
    ("flow", "code", "error"),
    [
        (SEAL, 401, sdk.WrongKey),
        (SEAL, 404, sdk.SessionNotFound),
        (SEAL, 409, sdk.WrongSequence),
        (SEAL, 500, sdk.RequestRefused),
        (SCORES, 400, sdk.RequestRefused),
        (SCORES, 401, sdk.WrongKey),
        (SCORES, 402, sdk.QuotaExceeded),
        (SCORES, 404, sdk.JobNotFound),
        (SCORES, 409, sdk.JobConflict),
    ],
)
def test_rejections_raise_typed_errors_with_service_message(
    flow: Callable[[], Flow[object]], code: int, error: type[sdk.RequestRefused]
) -> None:
    with pytest.raises(error, match="because") as raised:
        driven(flow(), Answer(code, b'{"error": "because", "status_code": 1}'))
    assert raised.type is error
    assert (raised.value.status, raised.value.foreign) == (code, False)


@pytest.mark.parametrize("body", [b"Internal Server Error", b'{"error": "caf\xe9"}'])
def test_rejection_without_json_keeps_status(body: bytes) -> None:
    with pytest.raises(sdk.RequestRefused, match="answered 500") as raised:
        driven(_session_flows.seal("key", "s"), Answer(500, body))
    assert raised.value.foreign


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"state": "caf\xe9"}', b'{"state":' + b"[" * 10_000])
def test_answer_from_foreign_service_raises(body: bytes) -> None:
    with pytest.raises(sdk.ServiceUnreachable, match="is not an Earshot service"):
        driven(_session_flows.status("key", "s", None), Answer(200, body))


@pytest.mark.parametrize(
    "flow",
    [
        lambda: _session_flows.seal("key", "s"),
        lambda: _session_flows.delete("key", "s"),
        lambda: _job_flows.delete("key", "j"),
        lambda: _own_sound_flows.delete("key", "Kettle"),
        lambda: _own_sound_flows.delete_mark("key", "Kettle", "m"),
    ],
)
def test_page_of_foreign_server_is_no_success(flow: Callable[[], Flow[None]]) -> None:
    with pytest.raises(sdk.ServiceUnreachable, match="is not an Earshot service"):
        driven(flow(), Answer(200, b"<html>"))


def test_deleting_what_is_missing_succeeds() -> None:
    for flow in (_session_flows.delete("key", "s"), _own_sound_flows.delete_mark("key", "Kettle", "m")):
        driven(flow, NoAnswer("reset"), Answer(404, b'{"error": "gone"}'))


def test_events_fetch_pages_once_and_pause_after_empty_page() -> None:
    steps, _ = driven(_session_flows.events("key", "s"), status(2, "a"), status(0, "a"), status(1))
    assert [call.query for call in calls(steps)] == [{}, {"next_token": "a"}, {"next_token": "a"}]
    assert [len(step.items) for step in steps if isinstance(step, Items)] == [2, 0, 1]
    assert [step for step in steps if isinstance(step, Pause)] == [Pause(_session_flows.EMPTY_PAUSE)]


def test_failed_session_yields_events_before_error() -> None:
    flow = _session_flows.events("key", "s")
    next(flow)
    page = flow.send(status(2, error="not a WAV file"))
    assert isinstance(page, Items)
    assert len(page.items) == 2
    with pytest.raises(sdk.SessionFailed, match="not a WAV file"):
        next(flow)


WINDOWS = st.lists(st.dictionaries(st.sampled_from(["Dog_bark", "Speech", "Siren"]), st.floats(0.5, 1)), max_size=12)


def event(number: int, tags: dict[str, float]) -> sdk.Event:
    named = tuple(sdk.Tag(name, probability) for name, probability in (tags or {"Others": 0.0}).items())
    return sdk.Event(number / 2, number / 2 + 1, named)


def joined(windows: list[dict[str, float]]) -> list[sdk.Run]:
    runs = sdk.Runs()
    return [run for number, tags in enumerate(windows) for run in runs.add(event(number, tags))] + runs.close()


def test_consecutive_windows_form_run_with_best_score() -> None:
    assert joined([{}, {"Dog_bark": 0.6}, {"Dog_bark": 0.93}, {"Dog_bark": 0.7}, {}, {"Dog_bark": 0.5}]) == [
        sdk.Run("Dog_bark", 0.5, 2.5, 0.93),
        sdk.Run("Dog_bark", 2.5, 3.5, 0.5),
    ]


def test_run_ends_at_first_window_without_sound() -> None:
    runs = sdk.Runs()
    found = [runs.add(event(0, {"Siren": 0.8})), runs.add(event(1, {"Speech": 0.8})), runs.close(), runs.close()]
    assert found == [[], [sdk.Run("Siren", 0, 1, 0.8)], [sdk.Run("Speech", 0.5, 1.5, 0.8)], []]


@given(WINDOWS)
def test_runs_cover_the_windows_exactly(windows: list[dict[str, float]]) -> None:
    covered = [
        (run.name, number)
        for run in joined(windows)
        for number in range(round(run.start * 2), round((run.end - 1) * 2) + 1)
    ]
    assert sorted(covered) == sorted((name, number) for number, tags in enumerate(windows) for name in tags)
