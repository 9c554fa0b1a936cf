"""Sessions of a running service: audio in, windows out, and their ends; `tests/unit/app/sessions` has all requests."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.api import UNKNOWN, Api, events, generic, predict, silence, tone, wav

pytestmark = pytest.mark.both_logs

MIB = 1024 * 1024
HALF = silence(0.5)


def starts(pages: list[dict[str, object]]) -> list[float]:
    return [event["start_time"] for event in events(pages)]


def test_chunks_are_stored_once_until_session_is_sealed(api: Api, sense: Api) -> None:
    session = api.create()
    first = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert (first.status_code, first.json()) == (200, {"session_id": session, "chunk_sequence": 1})
    generic(api.put(session, 0, HALF, Idempotency_Key="one"), 409)
    assert sense.put(session, 1, HALF).json()["chunk_sequence"] == 2, "both paths serve the same session"
    assert api.seal(session, value=False).status_code == 204
    assert api.seal(session).status_code == api.seal(session).status_code == 204
    again = api.put(session, 0, tone(0.5), Idempotency_Key="one")
    assert (again.status_code, again.json()) == (200, first.json()), "a repetition, also of a closed session"
    generic(api.put(session, 2, HALF), 403)
    last = api.follow(session)[-1]
    assert (last["state"], last["refs"]["chunk_sequence"], "error" in last) == ("readonly", 2, False)


def test_chunk_limit_is_exactly_one_mebibyte(api: Api) -> None:
    session = api.create("file")
    generic(api.put(session, 0, bytes(MIB + 1)), 413)
    assert api.page(session)["refs"]["chunk_sequence"] == 0
    assert api.put(session, 0, bytes(MIB)).status_code == 200


def test_one_of_sixteen_concurrent_uploads_wins(api: Api) -> None:
    session = api.create()
    api.send(session, HALF)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: api.put(session, 1, HALF), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    assert api.page(session)["refs"]["chunk_sequence"] == 2


def test_stream_is_analysed_live_and_file_once_closed(api: Api) -> None:
    """Both have the same windows."""
    pieces = (tone(1.3), silence(0.7), tone(0.6))
    stream, file = api.create("stream"), api.create("file", total_size=sum(map(len, pieces)))
    assert api.status(stream, count=4).json()["inference"]["page"]["total"] == 0
    api.send(stream, *pieces[:2])
    assert starts([api.page(stream, offset=2)]) == [1], "it waits for the first one in range"
    api.send(file, *pieces[:2])
    assert api.results(file).json() == {"state": "pending", "has_more": True, "data": []}
    for session in (stream, file):
        assert api.put(session, 2, pieces[2]).status_code == 200
    api.seal(stream)
    while (results := api.results(file).json())["state"] == "in-progress":
        assert isinstance(results["has_more"], bool)
    assert (results["state"], results["has_more"]) == ("done", False)
    generic(api.put(file, 3, HALF), 403)
    heard = events(api.follow(stream))
    assert [(one["start_time"], one["end_time"]) for one in heard] == [(0, 1), (0.5, 1.5), (1, 2), (1.5, 2.5), (2, 3)]
    assert heard == events(api.follow(file)) == results["data"]
    for one in heard:
        probabilities = [tag["probability"] for tag in one["tags"]]
        assert sorted(probabilities, reverse=True) == probabilities != []


def test_session_is_followed_by_tokens_while_it_runs(api: Api) -> None:
    session = api.create()
    with ThreadPoolExecutor(1) as pool:
        pages = pool.submit(api.follow, session)
        api.send(session, *[tone(0.5)] * 8)
        api.seal(session)
        assert starts(pages.result()) == [n / 2 for n in range(7)]


def test_page_holds_at_most_1024_windows(api: Api) -> None:
    audio = silence(600)
    session = api.create("file")
    api.send(session, *[audio[at : at + MIB] for at in range(0, len(audio), MIB)])
    api.seal(session)
    pages = api.follow(session, next_token="")
    assert starts(pages) == [n / 2 for n in range(1199)]
    assert max(page["inference"]["page"]["count"] for page in pages) <= 1024
    assert pages[-1]["inference"]["results"]


def test_files_are_decoded_whole_and_chunks_of_streams_alone(api: Api) -> None:
    file, stream, whole = api.create("file", "audio/wav"), api.create("stream", "audio/wav"), wav(tone(2))
    api.send(file, whole[:20], whole[20:5001], whole[5001:])
    api.send(stream, *[wav(tone(0.5))] * 3)
    for session, count in ((file, 3), (stream, 2)):
        api.seal(session)
        pages = api.follow(session)
        assert (len(events(pages)), "error" in pages[-1]) == (count, False)


@pytest.mark.parametrize(
    ("type", "content_type", "good"),
    [("stream", "audio/mp3", 0), ("file", "audio/mp3", 0), ("stream", "audio/wav", 1)],
    ids=["stream", "file", "after a window"],
)
def test_audio_of_another_type_closes_session_with_error(api: Api, type: str, content_type: str, good: int) -> None:
    session = api.create(type, content_type, total_size=1 if type == "file" else None)
    api.send(session, *[wav(tone(1))] * good)
    assert len(events([api.page(session)])) == good
    assert api.put(session, good, b"no audio at all" if good else wav(tone(1))).status_code == 200
    status = api.follow(session)[-1]
    assert (status["state"], status["inference"]["in_progress"]) == ("readonly", False)
    generic(api.put(session, good + 1, HALF), 403)
    results = api.results(session).json()
    assert (results["state"], results["error"], len(results["data"])) == ("error", status["error"], good)


def test_predict_returns_its_own_window(api: Api, sense: Api) -> None:
    session = sense.create()
    first, second = predict(sense, session, tone(2)), predict(sense, session, silence(2), sequence=1)
    assert first.json().keys() == {"data", "next_sequence"}
    assert [answer.json()["next_sequence"] for answer in (first, second)] == [1, 2]
    assert (first.json()["data"]["start_time"], first.json()["data"]["end_time"]) == (0, 2)
    assert second.json()["data"]["tags"] == [{"name": "Others", "probability": 0.0}]
    generic(sense.put(session, 2, tone(1)), 400)
    other = api.create(content_type="audio/mp3")
    generic(predict(api, other, wav(tone(1))), 400)
    assert api.page(other)["state"] == "readonly"


def test_deleted_session_returns_404_for_every_call(api: Api) -> None:
    session = api.create()
    api.send(session, tone(1))
    answer = api.delete(session)
    assert (answer.status_code, answer.content) == (204, b"")
    for gone in (session, UNKNOWN, "x"):
        for answer in (
            api.delete(gone),
            api.seal(gone),
            api.seal(gone, value=False),
            api.put(gone, 1, HALF),
            api.put(gone, 0, HALF, Idempotency_Key="late"),
            api.status(gone),
            api.results(gone),
            predict(api, gone, HALF),
            # The session is checked before anything else.
            api.put(gone, "abc", HALF),
            api.status(gone, count=0),
            api.status(gone, next_token="zz"),
            api.results(gone, limit=0),
            api.http.get(f"/audio_sessions/{gone}/activity?day=x"),
            api.http.get(f"/audio_sessions/{gone}/live"),
        ):
            generic(answer, 404)
