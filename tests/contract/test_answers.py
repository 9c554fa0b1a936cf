"""Provokes every error that the document promises; `accounting` reports missed ones at the end."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unittest import mock

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient

from app.dashboard import files
from app.documents.operations import DOCUMENT_ROUTES
from app.main import Ports, create_app
from tests.contract.accounting import met
from tests.contract.answers import DOCUMENT, watched
from tests.contract.api import UNKNOWN, Api, Service, generic, tone, wav
from tests.process import ADMIN_KEY
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, House
from tests.unit.app.jobs.conftest import sounds, transcript
from tests.unit.app.sessions.sockets import UPGRADE, opened, place
from tests.unit.asgi import Exchange
from tests.waiting import wait_for
from topics import apikeys
from topics.errors import AudioError, EngineAway, NotFound, Unavailable
from topics.jobs import payloads
from topics.jobs.options import Options
from topics.jobs.options import Service as JobService
from topics.jobs.payloads import Overlap, Segment, Transcript, Word
from topics.ports.directory import Principal
from topics.ports.lists import Coverage
from topics.ports.sign_ins import SignIn

OPERATIONS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    operation["operationId"]: (path, method, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if isinstance(operation, dict)
}
KEYS: Final = {
    "projectKey": {"X-Api-Key": KEY},
    "projectBearer": {"Authorization": f"Bearer {KEY}"},
    "organizationKey": {"X-Org-Key": ORG_KEY},
    "operatorKey": {"Authorization": f"Bearer {ADMIN_KEY}"},
}
SOCKETS: Final = [name for name, (_, _, operation) in OPERATIONS.items() if "101" in operation["responses"]]
OPERATED: Final = msgspec.structs.replace(OPTIONS, admin_key=apikeys.digest(ADMIN_KEY), upload_idle_seconds=0.2)


class Failing:
    """A port whose every call fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **named: object) -> Any:
            raise self._error

        return call


def edge(directory: Any, error: Exception) -> TestClient:
    """Return a client of an edge where nothing works except the directory of keys."""
    failing: Any = Failing(error)
    ports = Ports(
        sessions=failing,
        jobs=failing,
        directory=directory,
        prober=failing,
        speakers=failing,
        projects=failing,
        sign_ins=failing,
        own_sounds=failing,
        health=failing,
        administration=failing,
        nodes=failing,
        models=failing,
    )
    return watched(TestClient(create_app(ports, OPERATED), raise_server_exceptions=False))


def request(
    name: str, keyed: bool = True, places: Mapping[str, str] = MappingProxyType({}), media: str = ""
) -> dict[str, Any]:
    """Return a request for an operation, made from the document's examples, by default of its first body."""
    path, method, operation = OPERATIONS[name]
    headers: dict[str, str] = {}
    for security in operation["security"] if keyed else ():
        for scheme in security:
            headers |= KEYS[scheme]
    query = {}
    for parameter in operation["parameters"]:
        value = places.get(parameter["name"], parameter.get("example"))
        if parameter["in"] == "path":
            path = re.sub(rf"\{{{parameter['name']}\}}", str(value), path)
        elif parameter["in"] == "query" and parameter["required"]:
            query[parameter["name"]] = value
    made: dict[str, Any] = {"method": method, "url": path, "headers": headers, "params": query}
    contents = operation.get("requestBody", {"content": {}})["content"]
    if contents:
        media = media or next(iter(contents))
        example = next(iter(contents[media]["examples"].values()))["value"]
        if media == "application/json":
            made["json"] = example
        else:
            made["files"] = {part: _part(part, value) for part, value in example.items()}
    return made


def _part(name: str, value: Any) -> tuple[str | None, Any]:
    if name in ("audio", "file"):
        return value, wav(tone(1.0))
    return None, value if isinstance(value, str) else msgspec.json.encode(value)


def documented(status: int) -> list[str]:
    return [
        name
        for name, (_, _, operation) in OPERATIONS.items()
        if str(status) in operation["responses"] and name not in SOCKETS
    ]


SPEECH: Final = ("createTranscription", "createTranslation")
#: This operation needs the directory alone; `test_key_is_required_and_verified` covers its failure.
DIRECTORY_ALONE: Final = "listModels"


@pytest.mark.parametrize("name", [name for name in documented(500) if name != DIRECTORY_ALONE])
def test_internal_failure_returns_500(name: str) -> None:
    directory = House().directory
    assert edge(directory, RuntimeError("broken")).request(**request(name)).status_code == 500


@pytest.mark.parametrize("name", [name for name in documented(503) if name not in ("healthz", "readyz")])
def test_full_queue_returns_503(name: str) -> None:
    answer = edge(House().directory, Unavailable("the queue is full", retry_after=2)).request(**request(name))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize("name", documented(401))
def test_key_is_required_and_verified(house: House, http: TestClient, name: str) -> None:
    security = OPERATIONS[name][2]["security"]
    assert http.request(**request(name, keyed=False)).status_code == (200 if {} in security else 401)
    asked = request(name)
    asked["headers"] = {header: f"{value}x" for header, value in asked["headers"].items()}
    assert http.request(**asked).status_code == 401
    if "operatorKey" not in security[0]:
        house.directory.down = True
        assert http.request(**request(name)).status_code == 500


def test_sockets_are_rejected_before_upgrade() -> None:
    """Clients that offer no subprotocol read the status."""
    wanted = {(name, int(status)) for name in SOCKETS for status in OPERATIONS[name][2]["responses"]}
    assert wanted <= asyncio.run(_statuses_of_sockets())


async def _statuses_of_sockets() -> set[tuple[str, int]]:
    house = House()
    broken: Any = SimpleNamespace(app=edge(house.directory, RuntimeError("broken")).app)
    full: Any = SimpleNamespace(app=edge(house.directory, Unavailable("the queue is full")).app)
    spent = House()
    spent.directory.keys[KEY] = Principal("project", "organization", free_seconds=1)
    spent.directory.spent.add("project")
    session = await opened(house)
    return {
        (name, await _upgrade(served, name, {"session_id": place_of, "content_type": "audio/wav"}, headers))
        for name in SOCKETS
        for served, place_of, headers in (
            (house, session, {}),
            (house, session, {"Sec-WebSocket-Version": "12"}),
            (house, session, {"origin": "https://elsewhere.example"}),
            (house, session, {"X-Api-Key": "wrong"}),
            (house, UNKNOWN, {}),
            (broken, session, {}),
            (full, session, {}),
            (spent, UNKNOWN, {}),
        )
    }


async def _upgrade(house: House, name: str, places: Mapping[str, str], headers: Mapping[str, str]) -> int:
    """Return the status of a request for a socket."""
    asked = request(name, places=places)
    asked["headers"] = {**UPGRADE, **asked["headers"], **headers}
    async with place(house) as here:
        with watched(httpx2.Client(base_url=f"http://127.0.0.1:{here.port}", trust_env=False)) as client:
            answer = await asyncio.to_thread(client.request, **asked)
    return answer.status_code


@pytest.mark.parametrize("name", documented(502))
def test_unavailable_engine_returns_502(name: str) -> None:
    assert edge(House().directory, EngineAway("no answer")).request(**request(name)).status_code == 502


@pytest.mark.parametrize("name", documented(408))
async def test_stalled_body_returns_408(name: str) -> None:
    asked = request(name)
    built = httpx2.Request(asked["method"], f"http://here{asked['url']}", headers=asked["headers"])
    headers = {**built.headers, "content-type": "multipart/form-data; boundary=b"}
    answer = await Exchange(House(OPERATED), asked["url"], asked["method"].upper(), **headers).end()
    assert answer.status == 408
    met.add((name, 408))


@pytest.fixture
def house(tmp_path: Path) -> House:
    """An edge whose operator's interface fails."""
    options = msgspec.structs.replace(OPERATED, spool=tmp_path, upload_limit=1024**2, analyze_limit=1024**2)
    return House(options, administration=Failing(RuntimeError("broken")))


@pytest.fixture
def http(house: House) -> TestClient:
    return watched(TestClient(house.app, raise_server_exceptions=False))


@pytest.mark.parametrize(
    ("name", "media"),
    [
        (name, media)
        for name, (_, _, operation) in OPERATIONS.items()
        for media in operation.get("requestBody", {"content": ()})["content"]
    ],
)
def test_oversized_bodies_are_rejected(http: TestClient, name: str, media: str) -> None:
    places = _places(http)
    asked = request(name, places=places, media=media) | {"content": b" " * 3 * 1024**2}
    if "files" in asked:
        del asked["files"]
        asked["headers"] |= {"content-type": "multipart/form-data; boundary=b"}
    elif asked.pop("json", None) is not None:
        asked["headers"] |= {"content-type": "application/json"}
    answer = http.request(**asked)
    # These take larger files, and spaces are no form.
    takes_files = name in ("registerVoice", "recognizeSpeakers") and media.startswith("multipart/")
    assert answer.status_code == (400 if takes_files else 413), answer.text


def _places(http: TestClient) -> dict[str, str]:
    created = http.request(**request("createSession"))
    assert created.status_code == 200, created.text
    return {"session_id": created.json()["session_id"]}


def test_body_examples_are_accepted(house: House, http: TestClient) -> None:
    """Every example of a body in the document is accepted."""
    for name in ("createSession", "updateSession", "uploadChunk", "predict", "analyze", "analyzeFile", "registerVoice"):
        content = OPERATIONS[name][2]["requestBody"]["content"]
        for media, example in [(one, shown) for one in content for shown in content[one]["examples"].values()]:
            asked = request(name, places=_places(http), media=media)
            if "json" in asked:
                asked["json"] = example["value"]
            if "job_id" in example["value"]:
                asked["json"] = {**example["value"], "job_id": job_of_two_voices(house)}
            answer = http.request(**asked)
            assert answer.is_success, f"{name}: {answer.text}"
            if "/api/v2" in asked["url"]:
                assert answer.json()["error"] == ""


def job_of_two_voices(house: House) -> str:
    """Return a job with transcript and audio."""
    job = house.jobs.create(Options(speech_analysis=True), keep_audio_ms=60_000)
    house.jobs.perform(job, JobService.SPEECH, transcript(Segment(0, 4000, "One.", 0), Segment(4000, 8000, "Two.", 1)))
    return job


@pytest.mark.parametrize("name", ["listSessions", "listSessionsToo", "listJobs"])
def test_lists_are_paginated_and_report_missing_partitions(house: House, http: TestClient, name: str) -> None:
    for _ in range(2):
        http.request(**request("createSession"))
        job_of_two_voices(house)
    asked = request(name)
    first = http.request(**asked | {"params": {"count": 1}})
    assert http.request(**asked | {"params": {"next_token": first.json()["next_token"]}}).status_code == 200
    covered = Coverage(frozenset({0}), 3, frozenset())
    house.jobs.covered = house.sessions.covered = covered
    assert http.request(**asked).json()["missing"] == {"partitions": 2, "of": 3}
    for query in ({"state": "gone"}, {"since": "yesterday"}, {"count": 0}, {"next_token": "x"}):
        assert http.request(**asked | {"params": query}).status_code == 400


def test_job_scores_are_served_once_complete(house: House, http: TestClient) -> None:
    job = house.jobs.create(Options(sound_event_detection=True))

    def read(job: str) -> int:
        return http.request(**request("readScores", places={"job_id": job})).status_code

    assert (read(job), read(job_of_two_voices(house))) == (409, 404)
    house.jobs.perform(job, JobService.SOUND, sounds("Dog_bark", ""))
    assert read(job) == 200


def test_turns_include_words_and_overlaps(house: House, http: TestClient) -> None:
    job = house.jobs.create(Options(speech_analysis=True, word_times=True))
    turn = Segment(0, 4000, "One.", 0, words=(Word(100, 600, "One."),), overlap_ms=250)
    turn = msgspec.structs.replace(turn, overlaps=(Overlap(3750, 4000, 1, "Anna"),))
    house.jobs.perform(job, JobService.SPEECH, payloads.encode(Transcript((turn,), languages=("en",))))
    entry = http.request(**request("readJob", places={"job_id": job})).json()["result"]["speech_analysis"]
    assert entry["detected_language"] == "English"
    (result,) = entry["results"]
    assert (len(result["words"]), result["overlap_sec"]) == (1, 0.25)
    assert result["overlaps"] == [
        {"start_time_sec": 3.75, "end_time_sec": 4.0, "speaker": "SPEAKER_01", "speaker_name": "Anna"}
    ]


def test_kept_recordings_are_served(house: House, http: TestClient) -> None:
    job = job_of_two_voices(house)
    place = {"job_id": job}
    assert (
        http.request(**request("linkAudio", places=place)).json()["url"].startswith(f"/api/v1/jobs/{job}/audio?token=")
    )
    for name in ("readAudio", "readWaveform", "readSpectrogram"):
        assert http.request(**request(name, places=place)).status_code == 200
    asked = request("readAudio", places=place)
    for sent, status in (("bytes=0-9", 206), ("bytes=1000000-", 416)):
        assert http.request(**asked | {"headers": {**asked["headers"], "Range": sent}}).status_code == status
    for name, query in (("readWaveform", {"points": 0}), ("readSpectrogram", {"start": 2, "end": 1})):
        assert http.request(**request(name, places=place) | {"params": query}).status_code == 400
    none = {"job_id": house.jobs.create(Options(sound_event_detection=True))}
    for name in ("linkAudio", "readAudio", "readWaveform", "readSpectrogram"):
        assert http.request(**request(name, places=none)).status_code == 404


def test_custom_sound_upload_returns_501(http: TestClient) -> None:
    for name in ("createCustomSound", "finishCustomSound"):
        assert http.request(**request(name)).status_code == 501


def test_unreadable_voice_reports_reason(house: House, http: TestClient) -> None:
    house.speakers.failure = AudioError("the audio is damaged")
    answer = http.request(**request("registerVoice"))
    assert (answer.status_code, answer.headers["earshot-reason"]) == (200, "the audio is damaged")


def test_failing_probes_report_reason(house: House, http: TestClient) -> None:
    house.health.dying = house.health.waiting = "the log is read"
    for path in ("/healthz", "/readyz"):
        generic(http.get(path), 503, naming="the log is read")


def test_job_conflicts_return_409_and_spent_plans_402(house: House, http: TestClient) -> None:
    for name in ("analyze", "analyzeFile"):
        asked = request(name)
        asked["headers"]["Idempotency-Key"] = name
        assert http.request(**asked).status_code == 200
        other = request(name)
        other["headers"]["Idempotency-Key"] = name
        if "json" in other:
            other["json"] = {**other["json"], "options": {"speech_analysis": True}}
        else:
            other["files"]["options"] = (None, '{"speech_analysis": true}')
        assert http.request(**other).status_code == 409
    house.directory.keys["a-poor-key"] = Principal("poor", "organization", free_seconds=1)
    house.directory.spent.add("poor")
    for name in ("analyze", "analyzeFile"):
        asked = request(name)
        asked["headers"] = {"X-Api-Key": "a-poor-key"}
        assert http.request(**asked).status_code == 402
    for name in SPEECH:
        other = request(name)
        other["headers"]["Idempotency-Key"] = "analyze"
        assert http.request(**other).status_code == 409
        asked = request(name)
        asked["headers"] = {"Authorization": "Bearer a-poor-key"}
        assert http.request(**asked).status_code == 402


@pytest.mark.parametrize("name", ["analyze", "analyzeFile"])
def test_invalid_options_are_rejected(http: TestClient, name: str) -> None:
    for options, status in (({}, 400), ({"unknown": 1}, 422)):
        asked = request(name)
        if "json" in asked:
            asked["json"] = {**asked["json"], "options": options}
        else:
            asked["files"]["options"] = (None, msgspec.json.encode(options))
        assert http.request(**asked).status_code == status


@pytest.mark.parametrize("name", SPEECH)
def test_invalid_speech_forms_are_rejected(http: TestClient, name: str) -> None:
    for part, value, status in (("response_format", "xml", 400), ("model", "gpt-9", 404)):
        asked = request(name)
        asked["files"][part] = (None, value)
        assert http.request(**asked).status_code == status


@pytest.mark.parametrize("name", ["readProject", "changeProject", "rotateKey", "readDailyUsage", "signIn"])
def test_deleted_resource_returns_404(name: str) -> None:
    assert edge(House().directory, NotFound("this was deleted")).request(**request(name)).status_code == 404


def test_sign_in_by_link_and_sign_out(house: House, http: TestClient) -> None:
    house.sign_ins.redeem = mock.AsyncMock(return_value=SignIn("pass_p", None))
    assert http.request(**request("signIn")).json() == {"project": "pass_p", "organization": None}
    assert http.request(**request("signIn") | {"json": {}}).status_code == 400
    house.sign_ins.end = mock.AsyncMock(return_value=False)
    assert http.request(**request("signOut")).status_code == 204
    assert http.request(**request("signOut") | {"json": {}}).status_code == 400


def test_dashboard_is_served_with_etags(api: Api) -> None:
    moved = api.http.get("/dashboard")
    assert (moved.status_code, moved.headers["location"]) == (308, "/dashboard/")
    for name in files.names() | {""}:
        answer = api.http.get(f"/dashboard/{name}")
        assert answer.status_code == 200
        assert api.http.get(f"/dashboard/{name}", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    generic(api.http.get("/dashboard/nothing"), 404)


def test_captions_of_unfinished_job_return_409(house: House, http: TestClient) -> None:
    job = house.jobs.create(Options(sound_event_detection=True))
    for form in ("vtt", "srt"):
        assert http.get(f"/api/v1/jobs/{job}/captions.{form}").status_code == 409


def test_documents_are_served_with_etags(api: Api) -> None:
    for path in DOCUMENT_ROUTES:
        answer = api.http.get(path)
        assert answer.status_code == 200
        assert api.http.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    for path in ("/openapi.json", "/audio_sessions/openapi.json"):
        assert api.http.get(path, params={"version": "3.0"}).json()["openapi"] == "3.0.3"
        generic(api.http.get(path, params={"version": "4"}), 400, naming="version")


def operator(service: Service) -> httpx2.Client:
    return watched(
        httpx2.Client(base_url=f"{service.url}/admin/v1", headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=120)
    )


@pytest.mark.both_logs
def test_operator_interface_answers_as_documented(service: Service) -> None:
    with operator(service) as http:
        made = http.post("/organizations", json={"name": "Documents"}).json()["organization"]["id"]
        assert made in [one["id"] for one in http.get("/organizations").json()]
        project = http.post("/projects", json={"name": "P", "organization": made}).json()["project"]["id"]
        assert http.get("/projects", params={"organization": made}).json()[0]["id"] == project
        assert http.post(f"/organizations/{made}/key").status_code == 200
        assert http.post(f"/projects/{project}/key").status_code == 200
        assert http.put(f"/projects/{project}/plan", json={"free_seconds": 60}).status_code == 204
        for query in ({}, {"lines": "true"}, {"format": "csv"}, {"lines": "true", "format": "csv"}):
            assert http.get("/usage", params=query).status_code == 200
        for query in ({"month": "2026-13"}, {"mont": "2026-11"}, {"format": "xml"}):
            assert http.get("/usage", params=query).status_code == 400
        assert http.get("/usage", params={"project": "nobody"}).status_code == 404
        assert http.get("/projects", params={"organization": "nobody"}).status_code == 404
        assert http.get("/projects", params={"name": "P"}).status_code == 400
        for path in ("/organizations/nobody/key", "/projects/nobody/key"):
            assert http.post(path).status_code == 404
        assert http.put("/projects/nobody/plan", json={"free_seconds": 60}).status_code == 404
        for path in ("/organizations/nobody", "/projects/nobody"):
            assert http.delete(path).status_code == 404
        assert http.post("/projects", json={"name": "P", "organization": "nobody"}).status_code == 404
        for path in ("/organizations", "/projects"):
            assert http.post(path, json={}).status_code == 400
        assert http.put(f"/projects/{project}/plan", json={}).status_code == 400
        ambiguous(http, made)
        assert http.delete(f"/projects/{project}").status_code == 204
        assert http.delete(f"/organizations/{made}").status_code == 204


@pytest.mark.both_logs
def test_node_list_reports_partitions_and_workers(service: Service) -> None:
    with operator(service) as http:
        told = http.get("/nodes").json()
        assert told["missing"] == []
        (node,) = told["nodes"]
        assert node["state"] == told["state"], node["findings"]
        facts = node["node"]
        assert [one["number"] for one in facts["partitions"]] == list(range(told["partitions"]))
        assert {one["state"] for one in facts["partitions"]} == {"serving"}
        assert all(place["behind"] >= 0 for one in facts["partitions"] for place in one["topics"])
        assert {one["name"] for one in facts["engines"]} >= {"speech", "caption"}
        workers = [one for one in facts["workers"] if one["project"] is None]
        assert workers
        assert {one["state"] for one in workers} <= {"busy", "idle"}
        assert all(0 <= one["busy"] <= 1 and one["deaths"] == 0 for one in workers)
        # A busy log may answer too late, once or twice.
        parked = wait_for(lambda: http.get("/nodes").json()["nodes"][0]["node"]["parked"])
        assert parked["count"] >= len(parked["newest"])


def test_model_list_matches_official_tags(api: Api) -> None:
    told = api.http.get("/api/v1/models").json()
    sounds = told["models"][0]
    assert (sounds["kind"], told["sensitivity_logits"]) == ("sound-events", 0.7)
    assert [tag["name"] for tag in sounds["tags"]] == [tag["name"] for tag in api.http.get("/tags/official").json()]
    assert all(0 < tag["point"] < 1 for tag in sounds["tags"])
    assert api.http.get("/api/v1/models", headers={"X-Api-Key": "bad"}).status_code == 401


def test_project_reads_and_changes_itself(api: Api, service: Service) -> None:
    with operator(service) as http:
        made = http.post("/organizations", json={"name": "Own"}).json()["organization"]["id"]
        key = http.post("/projects", json={"name": "Own", "organization": made}).json()["key"]
        keyed = {"X-Api-Key": key}
        assert api.http.get("/api/v1/project", headers=keyed).json()["name"] == "Own"
        assert api.http.get("/api/v1/project/usage", headers=keyed).json()["rows"] == []
        late = {"since": "2026-11-23", "until": "2026-11-22"}
        assert api.http.get("/api/v1/project/usage", params=late, headers=keyed).status_code == 400
        for seconds, status in ((3600, 200), (10**9, 400)):
            change = {"keep_audio_seconds": seconds}
            assert api.http.patch("/api/v1/project", json=change, headers=keyed).status_code == status
        new = api.http.post("/api/v1/project/key", headers=keyed).json()["key"]
        assert api.http.get("/api/v1/project", headers={"X-Api-Key": new}).status_code == 200
        assert http.delete(f"/organizations/{made}").status_code == 204


def ambiguous(http: httpx2.Client, organization: str) -> None:
    """Check the answer for an ambiguous name."""
    other = http.post("/organizations", json={"name": "Documents too"}).json()["organization"]["id"]
    for one in (organization, other):
        assert http.post("/projects", json={"name": "Twin", "organization": one}).status_code == 201
    assert http.post("/projects/Twin/key").status_code == 400
    assert http.delete("/projects/Twin").status_code == 400
    assert http.delete(f"/organizations/{other}").status_code == 204
