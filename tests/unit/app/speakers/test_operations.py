"""The speaker interface: entries, turns, every error in its envelope, and isolation by key on every route."""

from typing import Any

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.unit.app.conftest import House
from tests.unit.app.speakers.conftest import END, VOICE, form, opened, recorded, refused
from topics.errors import AudioError, AudioTooLong, DirectoryDown, EarshotError, EngineAway, Unavailable
from topics.ports.speakers import SpeakerTurn


def register(http: TestClient, speaker: str, content: bytes = VOICE) -> Any:
    return http.post("/api/v2/voice", content=form(speaker, content))


def test_turns_are_numbered_and_times_include_hours_if_needed(house: House, http: TestClient) -> None:
    house.speakers.turns = [
        SpeakerTurn(59_990, 60_000, "Hello.", 1, "Anna", 0.712345, known=True),
        SpeakerTurn(61_000, 3_723_040, "", 0, "Unknown 0", 0.1, known=False, unlabeled=True),
    ]
    first, second = opened(http.post("/api/v2/recognition", content=recorded() + END))["transcription"]
    assert (first["idx"], first["transcript"], first["speaker_tag"], first["speaker_score"]) == (0, "Hello.", 1, 0.7123)
    assert (first["first_word_start_time"], first["last_word_end_time"]) == ("00:59.99", "01:00.00")
    assert (second["idx"], second["speaker_is_unlabeled"], second["org_pub_id"]) == (1, True, "")
    assert (second["first_word_start_time"], second["last_word_end_time"]) == ("01:01.00", "01:02:03.04")


@pytest.mark.parametrize(
    "query", ["", "speaker=", "speaker=Anna+Kim", "speaker=Anna%20Kim", "speaker=a-b", "speaker=%C3%84", "name=Anna"]
)
def test_speaker_name_is_validated_before_lookup(house: House, http: TestClient, query: str) -> None:
    message = "speaker is invalid. only alphabet, number and underscore are allowed"
    refused(http.delete(f"/api/v2/speaker?{query}"), message)
    refused(http.post(f"/api/v2/speaker/re-enroll?{query}"), message)
    assert house.speakers.calls == 0


def test_display_name_may_be_anything_that_is_printed(house: House, http: TestClient) -> None:
    register(http, "Anna")
    for text in "Müller", "Anna Maria", "李雷", "<b>" + 97 * "x":
        entry = opened(http.patch("/api/v2/speaker?speaker=Anna", json={"display_name": text}))
        assert (entry["speaker"], entry["display_name"]) == ("Anna", text)
        assert opened(http.get("/api/v2/speakers")) == [entry]
    for text in "", " Anna", "Anna\n", "a\u202eb", 101 * "x":
        answer = http.patch("/api/v2/speaker?speaker=Anna", json={"display_name": text})
        assert (answer.status_code, answer.json()["data"]) == (400, None), text
    refused(http.patch("/api/v2/speaker?speaker=Bob", json={"display_name": "B"}), "speaker not found")
    assert "display_name" not in opened(http.patch("/api/v2/speaker?speaker=Anna", json={"display_name": None}))


#: Exceptions of the port, and their status, text and seconds until another try.
FAILURES = {
    "too long": (AudioTooLong("601 s"), 200, "audio length is longer than 10 minutes", None),
    "no audio": (AudioError("the container is damaged"), 200, "the container is damaged", None),
    "full": (Unavailable("too many recordings wait", retry_after=7), 503, "too many recordings wait", "7"),
    "store": (DirectoryDown("the database does not answer"), 503, "the database does not answer", "5"),
    "inside": (EarshotError("a secret of ours"), 500, "Internal Server Error", None),
}
AWAY = {"/voice": "speaker service unavailable", "/recognition": "recognition service unavailable"}


@pytest.mark.parametrize("path", AWAY)
@pytest.mark.parametrize("failure", FAILURES)
def test_recording_errors_are_reported(house: House, http: TestClient, path: str, failure: str) -> None:
    house.speakers.failure, status, message, retry_after = FAILURES[failure]
    answer = http.post(f"/api/v2{path}", content=form("Anna"))
    refused(answer, message, status)
    assert answer.headers.get("retry-after") == retry_after
    assert answer.headers.get("earshot-reason") == (message if failure == "no audio" else None)


@pytest.mark.parametrize(("path", "message"), [*AWAY.items(), ("/speaker/re-enroll?speaker=A", AWAY["/voice"])])
def test_unavailable_engine_returns_502(house: House, http: TestClient, path: str, message: str) -> None:
    house.speakers.failure = EngineAway("connection refused at 10.0.0.1")
    with capture_logs() as lines:
        refused(http.post(f"/api/v2{path}", content=form("Anna")), message, 502)
    assert [(line["log_level"], line["reason"]) for line in lines] == [("warning", "connection refused at 10.0.0.1")]


def test_unknown_paths_and_methods_are_rejected(http: TestClient) -> None:
    for path in ("/api/v2", "/api/v2/", "/api/v2/voices", "/api/v2/speakers/"):
        refused(http.get(path), "Not Found", 404)
    answer = http.get("/api/v2/voice")
    refused(answer, "Method Not Allowed", 405)
    assert answer.headers["allow"] == "POST"
    assert http.get("/api/v20/speakers").json() == {"error": "Not Found"}


def test_log_and_metrics_contain_no_names(http: TestClient) -> None:
    with capture_logs() as lines:
        register(http, "Anna")
        register(http, "Anna Kim")
        http.post("/api/v2/recognition", content=recorded() + END)
        http.delete("/api/v2/speaker?speaker=Anna")
    assert [line["event"] for line in lines] == [
        "voice registered",
        "request refused",
        "recording recognized",
        "speaker removed",
    ]
    assert (lines[0]["organization"], lines[0]["size"]) == ("organization", len(VOICE))
    assert "Anna" not in repr(lines)
    samples = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(samples["earshot_voices_registered_total"]) == 1
    assert float(samples["earshot_recognitions_total"]) == 1
    assert float(samples['earshot_requests_refused_total{status="200"}']) == 1
