"""Lists of sessions and jobs: pages, cursors, filters, and parts from other nodes."""

import socket
from collections.abc import AsyncGenerator
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

from app.cluster import lists
from app.cluster.cursors import ListCursors
from app.cluster.forwarding import Forwarder
from app.http.replies import Reply, StreamReply
from tests.unit.app.conftest import KEY, House, serving
from tests.unit.app.jobs.conftest import BOTH, SOUND
from topics.errors import BadRequest
from topics.jobs.options import Service
from topics.keys import LATEST_MS, new_id
from topics.ports.directory import Principal
from topics.ports.lists import Coverage, ListQuery

PATHS = {"sessions": "/audio_sessions/", "jobs": "/api/v1/jobs"}
IDS = {"sessions": "session_id", "jobs": "job_id"}
BODY = {"type": "file", "content_type": "audio/wav", "file_name": "street.wav"}


def made(http: TestClient, house: House, kind: str, count: int, key: str = KEY) -> list[str]:
    """Create sessions or jobs of a project; return their ids, newest first."""
    if kind == "jobs":
        project = house.directory.keys[key].project
        return [house.jobs.create(SOUND, project=project) for _ in range(count)][::-1]
    ids = [http.post(PATHS[kind], json=BODY, headers={"X-Api-Key": key}).json()["session_id"] for _ in range(count)]
    return ids[::-1]


def read(http: TestClient, kind: str, **query: Any) -> dict[str, Any]:
    answer = http.get(PATHS[kind], params=query, headers={"X-Api-Key": KEY})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def ids(page: dict[str, Any]) -> list[str]:
    kind = next(name for name in IDS if name in page)
    return [entry[IDS[kind]] for entry in page[kind]]


@pytest.mark.parametrize("kind", PATHS)
def test_pages_contain_each_item_once_newest_first(http: TestClient, house: House, kind: str) -> None:
    expected = made(http, house, kind, 7)
    page = read(http, kind, count=3)
    found = ids(page)
    while "next_token" in page:
        page = read(http, kind, next_token=page["next_token"])
        assert len(ids(page)) in (1, 3), "a token keeps the length of its page, and no last page is empty"
        found += ids(page)
    assert found == expected
    assert ids(read(http, kind)) == expected


@pytest.mark.parametrize("kind", PATHS)
def test_new_items_are_not_on_later_pages(http: TestClient, house: House, kind: str) -> None:
    expected = made(http, house, kind, 4)
    first = read(http, kind, count=2)
    made(http, house, kind, 3)
    assert ids(first) + ids(read(http, kind, next_token=first["next_token"])) == expected


@pytest.mark.parametrize("kind", PATHS)
def test_project_sees_only_its_own_items(http: TestClient, house: House, kind: str) -> None:
    house.directory.keys["another"] = Principal("another", "organization")
    mine = made(http, house, kind, 2)
    made(http, house, kind, 2, "another")
    page = read(http, kind, count=1)
    assert ids(read(http, kind)) == mine
    stolen = http.get(PATHS[kind], params={"next_token": page["next_token"]}, headers={"X-Api-Key": "another"})
    assert stolen.status_code == 400
    assert "not a token of this list" in stolen.json()["error"]


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("count", value) for value in ("0", "201", "many")],
        *[("state", value) for value in ("deleted", "no such")],
        *[("since", value) for value in ("yesterday", "9" * 400)],
        ("until", "2026-13-01"),
        *[("next_token", value) for value in ("A" * 60, "A" * 4000, "\x00\xff")],
    ],
)
def test_malformed_parameter_returns_400(http: TestClient, kind: str, name: str, value: str) -> None:
    answer = http.get(PATHS[kind], params={name: value}, headers={"X-Api-Key": KEY})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{name}:")


@pytest.mark.parametrize("kind", PATHS)
def test_filters_by_time_and_state(http: TestClient, house: House, kind: str) -> None:
    newest, middle, oldest = made(http, house, kind, 3)
    times = {entry[IDS[kind]]: entry["created_at"] for entry in read(http, kind)[kind]}
    assert ids(read(http, kind, since=times[middle])) == [newest, middle]
    assert ids(read(http, kind, until=times[middle])) == [oldest]
    assert ids(read(http, kind, since=times[middle].replace("Z", "+00:00"), until=times[newest])) == [middle]
    assert ids(read(http, kind, until="1960-01-01")) == []
    if kind == "jobs":
        house.jobs.perform(middle, Service.SOUND)
        ended, others = "completed", "accepted,processing"
    else:
        http.patch(f"/audio_sessions/{middle}", json={"make_readonly": True})
        ended, others = "readonly", "writable"
    assert ids(read(http, kind, state=ended)) == [middle]
    assert ids(read(http, kind, state=others)) == [newest, oldest]
    page = read(http, kind, state=others, count=1)
    assert ids(read(http, kind, next_token=page["next_token"])) == [oldest], "a token keeps the filter"


def test_session_entry(http: TestClient, house: House) -> None:
    session = made(http, house, "sessions", 1)[0]
    entry = read(http, "sessions")["sessions"][0]
    assert entry == {
        "session_id": session,
        "state": "writable",
        "type": "file",
        "content_type": "audio/wav",
        "created_at": "2026-01-02T03:04:05.679Z",
        "updated_at": "1970-01-01T00:00:00.001Z",
        "file_name": "street.wav",
        "seconds": 0,
        "in_progress": False,
    }
    http.put(f"/audio_sessions/{session}/chunks/0", json={"data": "AAAA"})
    http.patch(f"/audio_sessions/{session}", json={"make_readonly": True})
    entry = read(http, "sessions")["sessions"][0]
    assert (entry["state"], entry["in_progress"]) == ("readonly", False)
    assert entry["error"].startswith("declared audio/wav")


def test_job_entry(http: TestClient, house: House) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND, audio_ms=2500)
    assert read(http, "jobs")["jobs"] == [
        {
            "job_id": job,
            "status": "processing",
            "created_at": "2026-01-02T03:04:05.680Z",
            "services": {"sound_event_detection": "success", "speech_analysis": "pending"},
            "filename": "a b.wav",
            "format": "wav",
            "size_bytes": 1234,
            "seconds": 2.5,
        }
    ]
    http.delete(f"/api/v1/jobs/{job}", headers={"X-Api-Key": KEY})
    assert read(http, "jobs") == {"jobs": []}


# --- many nodes -----------------------------------------------------------------------------------------------------


def test_page_merges_items_of_all_owners(http: TestClient, house: House) -> None:
    """The other node has every second job. Times count the commands of a node, so pairs of jobs have equal times."""
    other, expected = House(), []
    for _ in range(5):
        expected += [house.jobs.create(SOUND), other.jobs.create(SOUND)]
    other.jobs.covered = Coverage(frozenset({2}), 3, frozenset())
    with serving(other) as running:
        house.jobs.covered = Coverage(frozenset({0, 1}), 3, frozenset({running.url}))
        page = read(http, "jobs", count=4)
        found = ids(page)
        while "next_token" in page:
            assert "missing" not in page
            page = read(http, "jobs", next_token=page["next_token"])
            found += ids(page)
    assert sorted(found) == sorted(expected)
    pairs = [sorted(found[number : number + 2]) for number in range(0, 10, 2)]
    assert pairs == [sorted(expected[number : number + 2]) for number in range(8, -1, -2)]


@pytest.mark.parametrize("kind", PATHS)
def test_partitions_of_unreachable_node_are_missing(http: TestClient, house: House, kind: str) -> None:
    expected = made(http, house, kind, 1)
    covered = Coverage(frozenset({0, 1}), 4, frozenset({"http://127.0.0.1:9"}))
    house.jobs.covered = house.sessions.covered = covered
    assert read(http, kind)["missing"] == {"partitions": 2, "of": 4}
    assert ids(read(http, kind)) == expected


@pytest.mark.parametrize("answer", [b"{}", b"[", b'{"partitions":["x"],"entries":[]}', b""])
def test_partitions_of_invalid_answer_are_missing(
    http: TestClient, house: House, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """For example, another version."""
    monkeypatch.setattr(Forwarder, "forward", mock.AsyncMock(return_value=Reply(200, [], answer)))
    house.jobs.covered = Coverage(frozenset({0}), 2, frozenset({"http://other"}))
    assert read(http, "jobs")["missing"] == {"partitions": 1, "of": 2}


def test_long_answer_of_other_node_is_closed(http: TestClient, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"{"
        finally:
            closed.append(True)

    async def forward(self: object, scope: object, owner: str, body: bytes) -> StreamReply:
        begun = pieces()
        await anext(begun)
        return StreamReply(200, [], begun)

    monkeypatch.setattr(Forwarder, "forward", forward)
    house.jobs.covered = Coverage(frozenset({0}), 2, frozenset({"http://other"}))
    assert read(http, "jobs")["missing"] == {"partitions": 1, "of": 2}
    assert closed == [True]


def test_hanging_node_does_not_delay_list(http: TestClient, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "PART_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        house.jobs.covered = Coverage(frozenset({0}), 2, frozenset({url}))
        assert read(http, "jobs")["missing"] == {"partitions": 1, "of": 2}


def test_list_without_partitions_returns_503(http: TestClient, house: House) -> None:
    house.jobs.covered = Coverage(frozenset(), 4, frozenset())
    answer = http.get("/api/v1/jobs", headers={"X-Api-Key": KEY})
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)


def test_forwarded_request_lists_only_this_node(http: TestClient, house: House) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.covered = Coverage(frozenset({3}), 4, frozenset({"http://never.asked"}))
    answer = http.get("/api/v1/jobs", headers={"X-Api-Key": KEY, "X-Earshot-Forwarded": "1"}).json()
    assert answer["partitions"] == [3]
    assert [entry[1] for entry in answer["entries"]] == [job]


# --- cursors --------------------------------------------------------------------------------------------------------

QUERY = ListQuery("project", ("accepted",), 5, LATEST_MS, None, 7)


def test_cursor_preserves_query() -> None:
    cursors, id = ListCursors(b"s" * 32), new_id()
    for time_ms in (0, 1, 1_767_323_045_678, LATEST_MS):
        cursor = cursors.issue("jobs", QUERY, (time_ms, id))
        assert cursors.read("jobs", "project", cursor) == ListQuery(
            "project", ("accepted",), 5, LATEST_MS, (time_ms, id), 7
        )


def test_cursor_is_bound_to_list_project_and_deployment() -> None:
    cursors = ListCursors(b"s" * 32)
    cursor = cursors.issue("jobs", QUERY, (5, new_id()))
    for other, name, project in (
        (cursors, "sessions", "project"),
        (cursors, "jobs", "projects"),
        (ListCursors(b"t" * 32), "jobs", "project"),
    ):
        with pytest.raises(BadRequest):
            other.read(name, project, cursor)
