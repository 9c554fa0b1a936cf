"""Requests of the session interface over in-memory ports; `tests/contract` has what only a process shows."""

from typing import Any

import pytest

from tests.contract.api import RAW, UNKNOWN, Api, b64, events, generic, predict, silence, tone
from tests.contract.conftest import api, sense

__all__ = ["api", "sense"]

HALF = silence(0.5)
STREAM = {"type": "stream", "content_type": RAW}


def test_session_is_created_with_its_windows_geometry(api: Api, sense: Api) -> None:
    first, second = (driver.post(STREAM) for driver in (api, sense))
    for answer in (first, second):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json().keys() == {"session_id", "chunk_sequence", "window_size", "window_hop"}
        assert answer.json()["chunk_sequence"] == 0
        assert len(answer.json()["session_id"]) >= 22
    assert (first.json()["window_size"], first.json()["window_hop"]) == (1, 0.5)
    # A Go client decodes these into int fields, so whole seconds have no decimal point.
    assert '"window_size":2,"window_hop":1}' in second.text
    assert first.json()["session_id"] != second.json()["session_id"]
    for driver, wanted, geometry in ((api, "1s", (1, 1)), (sense, "0.5s", (2, 0.5))):
        answer = driver.post({**STREAM, "window_hop": wanted}).json()
        assert (answer["window_size"], answer["window_hop"]) == geometry
    for sent, status in ((STREAM, 200), ({}, 400)):
        slashless = api.http.post("/audio_sessions", json=sent, headers={"x-api-key": api.key})
        assert slashless.status_code == status


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type":"dance"}', b'{"type":"stream","content_type":"x"}'])
@pytest.mark.parametrize(
    ("headers", "wording"),
    [({}, "API key required"), ({"X-Api-Key": ""}, "API key required"), ({"X-Api-Key": "x" * 30}, "Invalid API key")],
)
def test_invalid_key_is_reported_before_invalid_body(
    api: Api, body: bytes, headers: dict[str, str], wording: str
) -> None:
    answer = api.http.post("/audio_sessions/", content=body, headers=headers)
    generic(answer, 401)
    assert answer.json()["error"] == wording


LONG = {"note": "x" * 5000}
#: Wrong values of each field; `...` leaves the field out.
WRONG: dict[str, list[Any]] = {
    "type": [..., "radio", 1],
    "content_type": [
        *(..., None, 5, "video/x-flv"),
        *(f"audio/x-raw; {one}" for one in ("rate=0; format=s16le", "rate=16000; format=s17le", "format=s16le")),
    ],
    "total_size": [0, -1, "10", 1.5, True],
    "default_sensitivity": [3, -3, 0.5],
    "tags_sensitivity": [[], {"Dog_bark": 3}, {"No_such_tag": 1}],
    "metadata": ["note", {"note": 1}, LONG],
    "metadatas": [LONG],
    "window_hop": ["2s"],
    "file_name": [1],
    "file_length": ["1"],
    "model": ["no_such_model"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, wrong in WRONG.items() for value in wrong])
def test_invalid_field_is_named(api: Api, field: str, value: Any) -> None:
    body = {name: told for name, told in {**STREAM, field: value}.items() if told is not ...}
    named = "No_such_tag" if value == {"No_such_tag": 1} else "no_such_model" if field == "model" else field
    generic(api.post(body), 400, naming=named)


def test_oversized_creation_body_is_rejected(api: Api) -> None:
    generic(api.post({**STREAM, "metadata": {"note": "x" * 100_000}}), 413)


@pytest.mark.parametrize(
    "content_type",
    [
        *("audio/wav", "audio/mp3", "audio/ogg", "audio/flac", "audio/aiff", "audio/wavex"),
        "audio/x-raw; rate=44100; format=f32",
        "audio/x-raw;rate=8000;format=u24be;channels=2",
    ],
)
def test_every_documented_content_type_is_accepted(api: Api, content_type: str) -> None:
    api.create(content_type=content_type)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        *[("POST", "", body, "body") for body in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 10_000)],
        *[("PATCH", "/{}", body, "body") for body in (b"", b"{", b"7")],
        ("PATCH", "/{}", b'{"make_readonly":"yes"}', "make_readonly"),
        *[("PUT", "/{}/chunks/0", body, "body") for body in (b"[]", b'{"data":"QUJD\xff"}')],
        *[("PUT", "/{}/chunks/0", b'{"data":%s}' % text, "data") for text in (b"null", b'"@@@@"', b'"QUJ"')],
        ("PUT", "/{}/chunks/0", b"{}", "data"),
    ],
)
def test_invalid_body_is_rejected_without_effect(api: Api, method: str, path: str, body: bytes, field: str) -> None:
    session = api.create()
    url = f"/audio_sessions{path.format(session)}"
    generic(api.http.request(method, url, content=body, headers={"X-Api-Key": api.key}), 400, naming=field)
    page = api.page(session)
    assert (page["state"], page["refs"]["chunk_sequence"]) == ("writable", 0)


@pytest.mark.parametrize("number", ["one", "1.0", "-1", "0x1", "1e0", "%20", "9" * 30])
def test_malformed_chunk_number_is_rejected(api: Api, number: str) -> None:
    generic(api.put(api.create(), number, HALF), 400, naming="chunk_sequence")


def test_chunks_are_accepted_in_sequence_and_repeated_by_key(api: Api) -> None:
    session = api.create("file", total_size=len(HALF) + 1)
    generic(api.put(session, 0, HALF, Idempotency_Key="k" * 256), 400, naming="Idempotency-Key")
    first = api.put(session, 0, HALF, Idempotency_Key="k" * 255)
    assert first.json() == {"session_id": session, "chunk_sequence": 1}
    for number in (0, 2, 1000):
        generic(api.put(session, number, tone(0.5)), 409)
    for data, key in ((HALF, "two"), (tone(0.5), "k" * 255)):
        generic(api.put(session, 0, data, Idempotency_Key=key), 409)
    # The last chunk may exceed the total size, and other members are ignored.
    body = {"data": b64(HALF), "comment": [1, {"deep": None}]}
    assert api.http.put(f"/audio_sessions/{session}/chunks/1", json=body).json()["chunk_sequence"] == 2
    generic(api.put(session, 2, HALF), 403)
    again = api.put(session, 0, HALF, Idempotency_Key="k" * 255)
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.parametrize("body", [{}, {"make_readonly": False}, {"make_readonly": None}])
def test_empty_update_changes_nothing(api: Api, body: dict[str, object]) -> None:
    session = api.create()
    assert api.http.patch(f"/audio_sessions/{session}", json=body).status_code == 204
    read = api.http.get(f"/audio_sessions/{session}/status", headers={"X-Api-Key": "not a key"}).json()
    assert (read["state"], read["refs"]) == ("writable", {"session_id": session, "chunk_sequence": 0})
    assert (read["inference"]["in_progress"], read["inference"]["results"], "error" in read) == (False, [], False)
    generic(api.http.patch(f"/audio_sessions/{UNKNOWN}", json=body), 404)


def test_predict_rejects_what_upload_rejects(api: Api) -> None:
    session = api.create()
    generic(predict(api, session, tone(1), sequence=1), 409)
    for sequence in (-1, "0"):
        generic(predict(api, session, tone(1), sequence=sequence), 400, naming="sequence")
    generic(predict(api, session, b""), 400, naming="data")
    generic(predict(api, session, bytes(1024 * 1024 + 1)), 413)
    generic(predict(api, api.create("file"), tone(1)), 400)
    api.send(session, tone(1))
    generic(predict(api, session, tone(1)), 400)
    api.seal(session)
    generic(predict(api, session, tone(1)), 403)


def closed(api: Api, seconds: float) -> str:
    """Return a finished session with that much sound."""
    session = api.create("file")
    api.send(session, tone(seconds))
    api.seal(session)
    return session


def test_tokens_page_through_every_window_once(api: Api) -> None:
    session = closed(api, 6)
    pages = api.follow(session, count=4)
    assert [page["inference"]["page"]["count"] for page in pages] == [4, 4, 3]
    assert [page["inference"]["page"]["offset"] for page in pages] == [0, 4, 8]
    assert [event["start_time"] for event in events(pages)] == [n / 2 for n in range(11)]
    assert all(event.keys() == {"start_time", "end_time", "tags"} for event in events(pages))
    assert "next_token" not in pages[-1]["inference"]["page"]
    first, last = api.results(session, limit=8).json(), api.results(session, offset=8, limit=8).json()
    assert (len(first["data"]), first["has_more"], last["has_more"]) == (8, True, False)
    assert first["data"] + last["data"] == events(pages)
    assert api.results(session).json() == {"state": "done", "data": events(pages), "has_more": False}
    even = api.follow(closed(api, 4.5), count=4)
    assert [page["inference"]["page"]["count"] for page in even] == [4, 4], "no last page is empty"
    token = pages[0]["inference"]["page"]["next_token"]
    page = api.page(session, next_token=token, offset=9, count=1)["inference"]["page"]
    assert (page["offset"], page["count"]) == (4, 4), "the token overrides them"
    assert api.status(session, next_token=token, offset="x", count=0).status_code == 200
    page = api.page(session, next_token="", offset=1, count=1)["inference"]["page"]
    assert (page["offset"], page["count"]) == (1, 1)
    for offset in (100, 10**14):
        assert api.page(session, offset=offset)["inference"]["page"] == {"count": 0, "offset": offset, "total": 11}


def test_foreign_or_forged_token_is_rejected(api: Api) -> None:
    session, other = closed(api, 2), closed(api, 2)
    token = api.page(other, count=1)["inference"]["page"]["next_token"]
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    for forged in (token, changed, "AAAA", "é", token + token, "0"):
        generic(api.status(session, next_token=forged), 400, naming="next_token")
    generic(api.status(other, next_token=changed), 400, naming="next_token")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("offset", value) for value in (-1, "x", "", "1.5", 10**30)],
        *[("count", value) for value in (0, 1025, -1, "all", "1e9", 10**30)],
    ],
)
def test_invalid_range_is_rejected(api: Api, field: str, value: int | str) -> None:
    session = api.create()
    generic(api.status(session, **{field: value}), 400, naming=field)
    field = "limit" if field == "count" else field
    generic(api.results(session, **{field: value}), 400, naming=field)


def test_pages_continue_after_cursor(api: Api) -> None:
    session, other = closed(api, 6), closed(api, 2)
    with api.http.stream("GET", f"/audio_sessions/{session}/live?events=window&after=start") as answer:
        cursors = [line.removeprefix("id: ") for line in answer.iter_lines() if line.startswith("id: ")]
    numbers = {
        "start": 0,
        "2": 3,
        cursors[0].replace(".1.", ".0."): 0,
        cursors[0]: 1,
        cursors[3]: 4,
        cursors[-1]: len(cursors),
    }
    for after, first in numbers.items():
        assert api.page(session, after=after, offset=1, count=1)["inference"]["page"]["offset"] == first
        windows = api.results(session, after=after).json()["data"]
        assert windows == api.results(session, offset=first).json()["data"]
    for wrong in ("yesterday", "-1", "1.1"):
        generic(api.status(session, after=wrong), 400, naming="after")
    generic(api.results(other, after=cursors[0]), 400, naming="another session")


def test_invalid_start_of_stream_is_rejected(api: Api) -> None:
    path = f"/audio_sessions/{api.create()}/live"
    for query in ("now", "1.5", "9" * 20):
        generic(api.http.get(path, params={"from": query}), 400, naming="from")
    for last in (b"abc", b"\xb2", b"-1", b"3.1.AAAA"):
        for start in ("", "?events=window", "?from=0"):
            generic(api.http.get(path + start, headers={b"Last-Event-ID": last}), 400, naming="Last-Event-ID")
    assert api.http.head(path).status_code == 200


@pytest.mark.parametrize("wrong", ["day=yesterday", "day=2026-02-30", "offset_minutes=900", "offset_minutes=x"])
def test_invalid_activity_query_is_rejected(api: Api, wrong: str) -> None:
    assert api.http.get(f"/audio_sessions/{api.create()}/activity?{wrong}").status_code == 400
    assert api.http.get(f"/api/v1/activity?{wrong}", headers={"X-Api-Key": api.key}).status_code == 400


@pytest.mark.parametrize("path", ["/nothing", "/audio_sessions/a/b/c", "/sense/api/v1", "/audio_sessions//status"])
def test_unknown_path_returns_generic_error(api: Api, path: str) -> None:
    generic(api.http.get(path), 404)


def test_wrong_method_returns_generic_error(api: Api) -> None:
    answer = api.http.get(f"/audio_sessions/{api.create()}")
    generic(answer, 405)
    assert (answer.headers["allow"], answer.reason_phrase) == ("DELETE, PATCH", "Method Not Allowed")


def test_client_library_versions_are_reported(sense: Api) -> None:
    assert "1.0.13" in sense.http.get("/client-libraries/versions").json()["supported_versions"]
    latest = sense.http.get("/client-libraries/latest", params={"current_version": "0.2.11"})
    assert isinstance(latest.json()["version"], str)
