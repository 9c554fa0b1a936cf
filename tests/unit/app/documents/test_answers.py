"""Provokes errors of every operation, as the document promises them; `accounting` reports missed ones at the end."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient

from app.main import Ports, create_app
from tests.contract.answers import DOCUMENT, watched
from tests.contract.api import UNKNOWN, tone, wav
from tests.process import ADMIN_KEY
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, Exchange, House
from tests.unit.app.jobs.conftest import transcript
from tests.unit.app.sessions.sockets import UPGRADE, opened, place
from topics import apikeys
from topics.errors import EngineAway, NotFound, Unavailable
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment
from topics.ports.directory import Principal

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
OPERATED: Final = msgspec.structs.replace(OPTIONS, admin_key=apikeys.digest(ADMIN_KEY), upload_idle_seconds=0.05)


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


@pytest.mark.parametrize(
    ("status", "failure", "names"),
    [
        (500, RuntimeError("broken"), [name for name in documented(500) if name != DIRECTORY_ALONE]),
        (502, EngineAway("no answer"), documented(502)),
        (404, NotFound("it was deleted"), ["readProject", "changeProject", "rotateKey", "readDailyUsage", "signIn"]),
    ],
)
def test_failure_returns_its_status(status: int, failure: Exception, names: list[str]) -> None:
    http = edge(House().directory, failure)
    for name in names:
        assert http.request(**request(name)).status_code == status, name


@pytest.mark.parametrize(
    "name", [name for name in documented(503) if name not in ("healthz", "readyz", DIRECTORY_ALONE)]
)
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
        down = http.request(**request(name))
        # The contract of the job interface has this status for a key that cannot be verified.
        of_jobs = down.json() == {"error": "API key verification failed"}
        assert (down.status_code, down.headers["retry-after"]) == (500 if of_jobs else 503, "5")


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
    wrong = {"Sec-WebSocket-Version": "12"}, {"origin": "https://elsewhere.example"}, {"X-Api-Key": "wrong"}
    return {
        (name, status)
        for served, place_of, many in (
            (house, session, ({}, *wrong)),
            (house, UNKNOWN, ({},)),
            (broken, session, ({},)),
            (full, session, ({},)),
            (spent, UNKNOWN, ({},)),
        )
        for name, status in await _upgrades(served, {"session_id": place_of, "content_type": "audio/wav"}, many)
    }


async def _upgrades(
    house: House, places: Mapping[str, str], many: Iterable[Mapping[str, str]]
) -> list[tuple[str, int]]:
    """Return the statuses of requests for each socket."""
    async with place(house) as here:
        with watched(httpx2.Client(base_url=f"http://127.0.0.1:{here.port}", trust_env=False, timeout=60)) as client:
            statuses = []
            for name, headers in product(SOCKETS, many):
                asked = request(name, places=places)
                asked["headers"] = {**UPGRADE, **asked["headers"], **headers}
                answer = await asyncio.to_thread(client.request, **asked)
                statuses.append((name, answer.status_code))
    return statuses


@pytest.mark.parametrize("name", documented(408))
async def test_stalled_body_returns_408(name: str) -> None:
    asked = request(name)
    built = httpx2.Request(asked["method"], f"http://here{asked['url']}", headers=asked["headers"])
    headers = {**built.headers, "content-type": "multipart/form-data; boundary=b"}
    answer = await Exchange(House(OPERATED), asked["url"], asked["method"].upper(), **headers).end()
    assert answer.status == 408


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
                job = house.jobs.create(Options(speech_analysis=True), keep_audio_ms=60_000)
                voices = Segment(0, 4000, "One.", 0), Segment(4000, 8000, "Two.", 1)
                house.jobs.perform(job, Service.SPEECH, transcript(*voices))
                asked["json"] = {**example["value"], "job_id": job}
            answer = http.request(**asked)
            assert answer.is_success, f"{name}: {answer.text}"
            if "/api/v2" in asked["url"]:
                assert answer.json()["error"] == ""


@pytest.mark.parametrize("name", ["createSessionToo", "listSessionsToo", "clientVersions", "latestClient"])
def test_example_request_is_answered(http: TestClient, name: str) -> None:
    assert http.request(**request(name)).status_code == 200


#: Requests that are wrong in one place.
WRONG: Final[dict[str, dict[str, Any]]] = {
    "createSession": {"json": {}},
    "createSessionToo": {"json": {}},
    "listSessionsToo": {"params": {"count": 0}},
    "uploadChunk": {"json": {"data": "@"}},
    "readStatus": {"params": {"offset": -1}},
    "readResults": {"params": {"offset": "one"}},
    "sessionActivity": {"params": {"day": "yesterday"}},
    "projectActivity": {"params": {"day": "yesterday"}},
    "switchSound": {"json": {"on": "yes"}},
    "markInJob": {"json": {"start": "x", "end": 3}},
    "findInJob": {"params": {"from": "x"}},
    "findInSession": {"params": {"from": "x"}},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_request_returns_400(http: TestClient, name: str) -> None:
    answer = http.request(**request(name, places=_places(http)) | WRONG[name])
    assert answer.status_code == 400, answer.text


def test_custom_sound_upload_returns_501(http: TestClient) -> None:
    for name in ("createCustomSound", "finishCustomSound"):
        assert http.request(**request(name)).status_code == 501
