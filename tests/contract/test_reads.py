"""Reading results: pages, tokens, waiting, and the formats that clients rely on."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.api import Api, events, generic, silence, tone


def closed(api: Api, seconds: float, type: str = "file", **more: Any) -> str:
    """Return a finished session with that much sound."""
    session = api.create(type, **more)
    api.send(session, tone(seconds))
    api.seal(session)
    api.follow(session)
    return session


def test_window_has_times_and_tags(api: Api) -> None:
    session = api.create()
    api.send(session, tone(1.5))
    first, second = events([api.page(session)])
    assert (first["start_time"], first["end_time"]) == (0, 1)
    assert (second["start_time"], second["end_time"]) == (0.5, 1.5)
    for event in (first, second):
        assert event.keys() == {"start_time", "end_time", "tags"}
        probabilities = [tag["probability"] for tag in event["tags"]]
        assert probabilities
        assert probabilities == sorted(probabilities, reverse=True)
        assert all(0 <= probability <= 1 for probability in probabilities)
        assert all(isinstance(tag["name"], str) for tag in event["tags"])


@pytest.mark.both_logs
def test_read_waits_for_first_result_in_range(api: Api) -> None:
    session = api.create()
    api.send(session, tone(1))
    assert api.status(session).json()["inference"]["page"]["count"] == 1
    assert api.put(session, 1, tone(0.5)).status_code == 200
    assert api.status(session, offset=1).json()["inference"]["page"] | {"next_token": ""} == {
        "count": 1,
        "offset": 1,
        "total": 2,
        "next_token": "",
    }


@pytest.mark.both_logs
def test_tokens_page_through_every_window_once(api: Api) -> None:
    session = closed(api, 6)
    pages = api.follow(session, count=4)
    assert [page["inference"]["page"]["count"] for page in pages] == [4, 4, 3]
    assert [page["inference"]["page"]["offset"] for page in pages] == [0, 4, 8]
    assert [event["start_time"] for event in events(pages)] == [n / 2 for n in range(11)]
    assert "next_token" not in pages[-1]["inference"]["page"]


def test_last_page_is_not_empty_at_boundary(api: Api) -> None:
    session = closed(api, 4.5)
    assert [page["inference"]["page"]["count"] for page in api.follow(session, count=4)] == [4, 4]


@pytest.mark.both_logs
def test_file_read_during_analysis_ends_with_nonempty_page(api: Api) -> None:
    session = api.create("file")
    api.send(session, tone(10))
    api.seal(session)
    pages = api.follow(session, next_token="")
    assert len(events(pages)) == 19
    assert pages[-1]["inference"]["results"]


@pytest.mark.both_logs
def test_live_session_is_followed_by_tokens(api: Api) -> None:
    session = api.create()
    with ThreadPoolExecutor(1) as pool:
        pages = pool.submit(api.follow, session)
        api.send(session, *[tone(0.5)] * 8)
        api.seal(session)
        starts = [event["start_time"] for event in events(pages.result())]
    assert starts == [n / 2 for n in range(7)]


def test_token_overrides_offset_and_count(api: Api) -> None:
    session = closed(api, 6)
    token = api.page(session, count=3)["inference"]["page"]["next_token"]
    page = api.page(session, next_token=token, offset=9, count=1)["inference"]["page"]
    assert (page["offset"], page["count"]) == (3, 3)
    assert api.status(session, next_token=token, offset="x", count=0).status_code == 200


def test_empty_token_is_ignored(api: Api) -> None:
    session = closed(api, 2)
    page = api.page(session, next_token="", offset=1, count=1)["inference"]["page"]
    assert (page["offset"], page["count"]) == (1, 1)


def test_foreign_or_forged_token_is_rejected(api: Api) -> None:
    session, other = closed(api, 2), closed(api, 2)
    token = api.page(other, count=1)["inference"]["page"]["next_token"]
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    for forged in (token, changed, "AAAA", "é", token + token, "0"):
        generic(api.status(session, next_token=forged), 400, naming="next_token")
    generic(api.status(other, next_token=changed), 400, naming="next_token")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"offset": -1}, "offset"),
        ({"offset": "x"}, "offset"),
        ({"offset": ""}, "offset"),
        ({"offset": "1.5"}, "offset"),
        ({"count": 0}, "count"),
        ({"count": 1025}, "count"),
        ({"count": -1}, "count"),
        ({"count": "all"}, "count"),
        ({"count": "1e9"}, "count"),
        ({"count": 10**30}, "count"),
        ({"offset": 10**30}, "offset"),
    ],
)
def test_invalid_range_is_rejected(api: Api, query: dict[str, Any], field: str) -> None:
    generic(api.status(api.create(), **query), 400, naming=field)
    if field == "count":
        query = {"limit": query["count"]}
    generic(api.results(api.create(), **query), 400, naming="offset" if field == "offset" else "limit")


def test_offset_past_end_returns_empty_page(api: Api) -> None:
    session = closed(api, 2)
    for offset in (100, 10**14):
        page = api.page(session, offset=offset)["inference"]["page"]
        assert page == {"count": 0, "offset": offset, "total": 3}


@pytest.mark.both_logs
def test_page_holds_at_most_1024_windows(api: Api) -> None:
    session = api.create("file", total_size=len(silence(600)))
    audio = silence(600)
    api.send(session, *[audio[at : at + 1024 * 1024] for at in range(0, len(audio), 1024 * 1024)])
    pages = api.follow(session)
    assert [event["start_time"] for event in events(pages)] == [n / 2 for n in range(1199)]
    assert max(page["inference"]["page"]["count"] for page in pages) <= 1024


@pytest.mark.both_logs
def test_results_report_session_progress(api: Api) -> None:
    session = api.create("file")
    pending = api.results(session)
    assert pending.json() == {"state": "pending", "has_more": True, "data": []}
    api.send(session, tone(3))
    api.seal(session)
    done = api.results(session).json()
    while done["state"] == "in-progress":
        assert isinstance(done["has_more"], bool)
        done = api.results(session).json()
    assert done.keys() == {"state", "data", "has_more"}
    assert (done["state"], done["has_more"], len(done["data"])) == ("done", False, 5)


@pytest.mark.both_logs
def test_results_are_paginated(api: Api) -> None:
    session = closed(api, 3)
    first, last = api.results(session, limit=3).json(), api.results(session, offset=3, limit=3).json()
    assert (len(first["data"]), first["has_more"]) == (3, True)
    assert (len(last["data"]), last["has_more"]) == (2, False)
    assert first["data"] + last["data"] == events([api.page(session)])


def test_pages_continue_after_cursor(api: Api) -> None:
    session, other = closed(api, 6), closed(api, 2)
    api.follow(session)
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
