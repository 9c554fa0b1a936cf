"""Own sounds over HTTP: the passage of a mark, matches of a sound, and permissions."""

from typing import Any
from unittest import mock

import msgspec
import pytest
from starlette.testclient import TestClient

from app.own_sounds import operations
from tests.contract.api import RAW
from tests.unit.app.conftest import House
from tests.unit.app.double import GRAPH, MODEL, Session
from topics.choices import Choices
from topics.errors import BadRequest, Conflict, EarshotError, NotFound
from topics.hearing import Hearing, OwnSound
from topics.jobs import payloads
from topics.jobs.options import Options, Service
from topics.keys import new_id
from topics.ports.own_sounds import Mark, TaughtSound
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead

OWN = "/api/v1/own_sounds/Kettle"
TAUGHT = TaughtSound("Kettle", 1000, False, None, {}, True, [])
KETTLE = OwnSound("Kettle", GRAPH, b"", b"")
#: The embeddings of eight windows; the first and the fourth have no look.
LOOKS = [bytes(2), b"\1\1", b"\1\1", bytes(2), b"\2\2", b"\3\3", b"\4\4", b"\4\4"]


@pytest.fixture
def session(house: House) -> str:
    """A session with the windows of `LOOKS`, one second every half second."""
    name = new_id()
    hearing = Hearing(choices=Choices(keep_embeddings=True))
    opened = Opened("o", "stream", RAW, "project", 1000, 500, model=MODEL, hearing=hearing)
    house.sessions.sessions[name] = Session(opened, SessionHead("stream", None, 1, 0, windows=len(LOOKS)), 1)
    house.sessions.kept = LOOKS
    house.own_sounds.mark = mock.AsyncMock(return_value=TAUGHT)
    house.own_sounds.learnt = mock.AsyncMock(return_value=KETTLE)
    # The score of an embedding is its first number.
    house.own_sounds.scores = lambda sound, embeddings, recording: bytes(126 + number for number in embeddings[::2])
    return name


def marked(house: House) -> Mark:
    _, _, mark = house.own_sounds.mark.await_args.args
    assert isinstance(mark, Mark)
    return mark


@pytest.mark.parametrize(
    ("start", "end", "embeddings"),
    [
        # Middles of windows are at 0.5, 1.0, 1.5 ...
        (0.9, 2.1, b"\1\1"),
        (2.4, 3.0, b"\2\2\3\3"),
        (2.5, 30, b"\2\2\3\3\4\4"),
        (0, 4, b"\1\1\2\2\3\3\4\4"),
        (2.6, 2.7, b"\2\2"),
        (4.3, 4.4, b"\4\4"),
    ],
)
def test_mark_stores_embeddings_of_its_windows_once(
    house: House, http: TestClient, session: str, start: float, end: float, embeddings: bytes
) -> None:
    answer = http.post(f"{OWN}/sessions/{session}", json={"start": start, "end": end, "right": False})
    assert answer.status_code == 201, answer.text
    mark = marked(house)
    assert (mark.embeddings, mark.right, mark.job, mark.source, mark.graph) == (
        embeddings,
        False,
        False,
        session,
        GRAPH,
    )
    assert (mark.start_ms, mark.end_ms) == (round(1000 * start), round(1000 * end))


@pytest.mark.parametrize(
    ("start", "end", "status", "said"),
    [
        (0, 0.6, 400, "no sound in this passage"),
        (2, 2, 400, "after start, by at most 30 s"),
        (0, 30.1, 400, "after start, by at most 30 s"),
        (60, 61, 409, "after the analysed audio"),
        (-1, 2, 400, "start"),
        ("x", 2, 400, "start"),
    ],
)
def test_invalid_passages_are_rejected(
    http: TestClient, session: str, start: Any, end: float, status: int, said: str
) -> None:
    answer = http.post(f"{OWN}/sessions/{session}", json={"start": start, "end": end})
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text


def test_sound_is_found_in_session(house: House, http: TestClient, session: str) -> None:
    found = http.get(f"{OWN}/sessions/{session}").json()
    assert [(one["start"], one["end"]) for one in found["found"]] == [(2.0, 4.5)]
    assert (found["seconds"], found["more"]) == (4.5, False)
    with mock.patch.object(operations, "MOST_FOUND", 0):
        assert http.get(f"{OWN}/sessions/{session}").json()["more"]
    later = http.get(f"{OWN}/sessions/{session}?from=3").json()
    assert [(one["start"], one["end"]) for one in later["found"]] == [(3.0, 4.5)]
    house.own_sounds.learnt.return_value = msgspec.structs.replace(KETTLE, graph="other")
    assert http.get(f"{OWN}/sessions/{session}").status_code == 404


def test_job_is_marked_and_searched(house: House, http: TestClient, session: str) -> None:
    job = house.jobs.create(Options(sound_event_detection=True))
    known = house.jobs.view(job)
    assert known is not None
    assert http.post(f"{OWN}/jobs/{job}", json={"start": 0, "end": 2}).status_code == 409
    portions = [
        payloads.encode(payloads.Sounds(first, MODEL, 1, bytes(4), b"".join(LOOKS[first : first + 4])))
        for first in (0, 4)
    ]
    house.jobs.perform(job, Service.SOUND, *portions)
    assert "`keep_embeddings`" in http.post(f"{OWN}/jobs/{job}", json={"start": 0, "end": 2}).json()["error"]
    kept = msgspec.structs.replace(known.accepted, hearing=Hearing(choices=Choices(keep_embeddings=True)))
    view = house.jobs.view(job)
    assert view is not None
    with mock.patch.object(house.jobs, "view", return_value=msgspec.structs.replace(view, accepted=kept)):
        # Windows of two seconds, one per second: middles at 1, 2 ...
        assert http.post(f"{OWN}/jobs/{job}", json={"start": 4.5, "end": 6.5}).status_code == 201
        assert (marked(house).embeddings, marked(house).job) == (b"\2\2\3\3", True)
        found = http.get(f"{OWN}/jobs/{job}").json()["found"]
        assert [(one["start"], one["end"]) for one in found] == [(4.0, 9.0)]


def test_sound_is_learnt_switched_on_and_deleted(house: House, http: TestClient) -> None:
    store = house.own_sounds
    store.sounds.return_value, store.learn.return_value, store.switch.return_value = [TAUGHT], TAUGHT, TAUGHT
    assert [sound["name"] for sound in http.get("/api/v1/own_sounds").json()["sounds"]] == ["Kettle"]
    assert http.post(f"{OWN}/learn").json()["name"] == http.patch(OWN, json={"on": True}).json()["name"] == "Kettle"
    store.switch.assert_awaited_once_with("project", "Kettle", True)
    assert http.delete(f"{OWN}/marks/m").status_code == http.delete(OWN).status_code == 204
    store.unmark.assert_awaited_once_with("project", "Kettle", "m")
    store.remove.assert_awaited_once_with("project", "Kettle")


@pytest.mark.parametrize(
    ("method", "path", "asked", "error"),
    [
        ("POST", "/learn", "learn", BadRequest("mark more")),
        ("POST", "/learn", "learn", NotFound("no such sound")),
        ("PATCH", "", "switch", NotFound("no such sound")),
        ("PATCH", "", "switch", Conflict("has to be learnt first")),
        ("DELETE", "", "remove", NotFound("no such sound")),
        ("DELETE", "/marks/m", "unmark", NotFound("no such mark")),
        ("GET", "/jobs/j", "learnt", Conflict("has to be learnt first")),
        ("GET", "/sessions/s", "learnt", Conflict("has to be learnt first")),
    ],
)
def test_errors_of_store_are_reported(
    house: House, http: TestClient, method: str, path: str, asked: str, error: EarshotError
) -> None:
    getattr(house.own_sounds, asked).side_effect = error
    answer = http.request(method, OWN + path, json={"on": True} if method == "PATCH" else None)
    assert (answer.status_code, answer.json()) == (error.status, {"error": str(error)})


@pytest.mark.parametrize("path", ["sessions", "jobs"])
def test_items_of_other_projects_return_404(house: House, http: TestClient, session: str, path: str) -> None:
    others = house.jobs.create(Options(sound_event_detection=True), project="other")
    known = house.sessions.sessions[session]
    known.opened = msgspec.structs.replace(known.opened, project="other")
    for place in (others if path == "jobs" else session, new_id(), "x"):
        assert http.get(f"{OWN}/{path}/{place}").status_code == 404
        assert http.post(f"{OWN}/{path}/{place}", json={"start": 0, "end": 1}).status_code == 404
