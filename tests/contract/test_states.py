"""States of a session: how it closes, and which requests closed and deleted sessions still accept."""

import pytest

from tests.contract.api import RAW, UNKNOWN, Api, events, generic, silence, tone, wav

HALF = silence(0.5)


@pytest.mark.both_logs
def test_new_session_is_writable_and_empty(api: Api) -> None:
    session = api.create()
    status = api.page(session)
    assert status["state"] == "writable"
    assert status["refs"] == {"session_id": session, "chunk_sequence": 0}
    assert status["inference"]["in_progress"] is False
    assert status["inference"]["results"] == []
    assert status["inference"]["page"]["total"] == 0
    assert "error" not in status


@pytest.mark.both_logs
def test_make_readonly_closes_session_permanently(api: Api) -> None:
    session = api.create()
    answer = api.seal(session)
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.seal(session, value=False).status_code == 204
    assert api.page(session)["state"] == "readonly"
    generic(api.put(session, 0, HALF), 403)
    assert api.seal(session).status_code == 204


@pytest.mark.parametrize("body", [{}, {"make_readonly": False}, {"make_readonly": None}])
def test_empty_update_changes_nothing(api: Api, body: dict[str, object]) -> None:
    session = api.create()
    assert api.http.patch(f"/audio_sessions/{session}", json=body).status_code == 204
    assert api.page(session)["state"] == "writable"
    generic(api.http.patch(f"/audio_sessions/{UNKNOWN}", json=body), 404)


@pytest.mark.parametrize(
    ("body", "field"), [(b"", "body"), (b"{", "body"), (b'{"make_readonly":"yes"}', "make_readonly"), (b"7", "body")]
)
def test_invalid_update_is_rejected(api: Api, body: bytes, field: str) -> None:
    session = api.create()
    generic(api.http.patch(f"/audio_sessions/{session}", content=body), 400, naming=field)
    assert api.page(session)["state"] == "writable"


@pytest.mark.both_logs
@pytest.mark.parametrize("type", ["stream", "file"])
def test_session_closes_at_total_size(api: Api, type: str) -> None:
    session = api.create(type, total_size=2 * len(HALF))
    api.send(session, HALF)
    assert api.results(session).json()["state"] == "pending"
    assert api.put(session, 1, HALF).json()["chunk_sequence"] == 2
    assert api.follow(session)[-1]["state"] == "readonly"
    generic(api.put(session, 2, HALF), 403)


@pytest.mark.both_logs
def test_last_chunk_may_exceed_total_size(api: Api) -> None:
    session = api.create(total_size=10)
    assert api.put(session, 0, HALF).status_code == 200
    generic(api.put(session, 1, HALF), 403)


@pytest.mark.both_logs
def test_stream_is_analysed_live_and_file_once_closed(api: Api) -> None:
    stream, file = api.create("stream"), api.create("file")
    api.send(stream, tone(1), tone(1))
    api.send(file, tone(1), tone(1))
    assert api.page(stream)["inference"]["page"]["total"] > 0
    waiting = api.results(file).json()
    assert (waiting["state"], waiting["data"]) == ("pending", [])
    assert api.seal(file).status_code == 204
    assert len(events(api.follow(file))) == 3


@pytest.mark.both_logs
def test_streams_and_files_have_same_windows(api: Api) -> None:
    found = []
    for type in ("stream", "file"):
        session = api.create(type)
        api.send(session, tone(1.3), silence(0.7), tone(0.6))
        api.seal(session)
        found.append([(event["start_time"], event["end_time"]) for event in events(api.follow(session))])
    assert found[0] == found[1] == [(0, 1), (0.5, 1.5), (1, 2), (1.5, 2.5), (2, 3)]


@pytest.mark.both_logs
def test_file_chunks_are_decoded_as_one_file(api: Api) -> None:
    session = api.create("file", "audio/wav")
    file = wav(tone(2))
    api.send(session, file[:20], file[20:5001], file[5001:])
    api.seal(session)
    pages = api.follow(session)
    assert len(events(pages)) == 3
    assert "error" not in pages[-1]


@pytest.mark.both_logs
def test_every_stream_chunk_is_decoded_alone(api: Api) -> None:
    session = api.create("stream", "audio/wav")
    api.send(session, wav(tone(0.5)), wav(tone(0.5)), wav(tone(0.5)))
    api.seal(session)
    assert len(events(api.follow(session))) == 2


@pytest.mark.both_logs
@pytest.mark.parametrize("type", ["stream", "file"])
def test_mismatched_audio_type_closes_session_with_error(api: Api, type: str) -> None:
    session = api.create(type, "audio/mp3", total_size=None if type == "stream" else 1)
    api.send(session, wav(tone(1)))
    status = api.follow(session)[-1]
    assert status["state"] == "readonly"
    assert status["error"]
    assert status["inference"]["in_progress"] is False
    generic(api.put(session, 1, HALF), 403)
    results = api.results(session).json()
    assert (results["state"], results["error"]) == ("error", status["error"])


@pytest.mark.both_logs
def test_windows_before_error_are_still_served(api: Api) -> None:
    session = api.create("stream", "audio/wav")
    api.send(session, wav(tone(1)))
    assert len(events([api.page(session)])) == 1
    assert api.put(session, 1, b"no audio at all").status_code == 200
    last = api.follow(session)[-1]
    assert last["error"]
    assert len(events([api.page(session)])) == 1


@pytest.mark.both_logs
def test_deleted_session_returns_404_for_every_call(api: Api) -> None:
    session = api.create()
    api.send(session, tone(1))
    answer = api.delete(session)
    assert (answer.status_code, answer.content) == (204, b"")
    for gone in (
        api.delete(session),
        api.seal(session),
        api.seal(session, value=False),
        api.put(session, 1, HALF),
        api.put(session, 0, HALF, Idempotency_Key="late"),
        api.status(session),
        api.results(session),
        api.http.post(f"/audio_sessions/{session}/predict", json={"data": "AAAA"}),
        # The session is checked before anything else.
        api.http.put(f"/audio_sessions/{session}/chunks/abc", json={"data": "AAAA"}),
        api.http.get(f"/audio_sessions/{session}/status?count=0"),
        api.http.get(f"/audio_sessions/{session}/status?next_token=zz"),
        api.http.get(f"/audio_sessions/{session}/results?limit=0"),
        api.http.get(f"/audio_sessions/{session}/activity?day=x"),
    ):
        generic(gone, 404)


@pytest.mark.both_logs
def test_unknown_session_returns_404_for_every_call(api: Api) -> None:
    for session in (UNKNOWN, "x"):
        for answer in (
            api.delete(session),
            api.seal(session),
            api.status(session),
            api.results(session),
            api.put(session, 0, HALF),
        ):
            generic(answer, 404)


def test_status_ignores_invalid_api_key(api: Api) -> None:
    session = api.create(content_type=RAW)
    answer = api.http.get(f"/audio_sessions/{session}/status", headers={"X-Api-Key": "not a key"})
    assert answer.status_code == 200
