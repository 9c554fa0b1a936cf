"""Provokes errors of every operation, as the document promises them; `accounting` reports missed ones at the end."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from app.documents.build import everything
from app.http.sockets import EXTENSION, Upgrade
from app.main import Ports, create_app
from tests.contract.answers import DOCUMENT, watched
from tests.contract.api import UNKNOWN, tone, wav
from tests.process import ADMIN_KEY
from tests.unit.app.conftest import KEY, OPTIONS, ORG_KEY, Exchange, House
from tests.unit.app.jobs.conftest import transcript
from tests.unit.app.sessions.sockets import UPGRADE, opened
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
NEEDS_KEYS: Final = msgspec.structs.replace(OPTIONS, sessions_need_key=True, job_reads_need_key=True)
OPERATED: Final = msgspec.structs.replace(OPTIONS, admin_key=apikeys.digest(ADMIN_KEY), upload_idle_seconds=0.05)


class Failing:
    """A port whose every call fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return mock.Mock(side_effect=self._error)


def upgradable(app: ASGIApp) -> ASGIApp:
    """Return an application whose requests for a socket could be upgraded."""

    async def upgrading(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {EXTENSION: mock.Mock(spec=Upgrade)}}, receive, send)

    return upgrading


def client_of(app: ASGIApp) -> TestClient:
    return watched(TestClient(upgradable(app), raise_server_exceptions=False))


def edge(directory: Any, error: Exception) -> TestClient:
    """Return a client of an edge where nothing works except the directory of keys."""
    failing: Any = Failing(error)
    alone = {"readings", "lanes", "tallies", "tell"}
    ports = Ports(**dict.fromkeys(set(Ports.__struct_fields__) - alone, failing) | {"directory": directory})
    return client_of(create_app(ports, OPERATED))


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
    if "101" in operation["responses"]:
        headers |= UPGRADE
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
    return [name for name, (_, _, operation) in OPERATIONS.items() if str(status) in operation["responses"]]


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


def wrong_keys(schemes: set[str]) -> Iterator[tuple[str, str]]:
    """Yield headers with a wrong key, and with a key of another kind or in another form."""
    others = [next(iter(KEYS[other].items())) for other in KEYS.keys() - schemes]
    for header, value in (entry for scheme in schemes for entry in KEYS[scheme].items()):
        scheme, _, key = value.rpartition(" ")
        for wrong in (f"{key}x", key[:-1], key.upper(), "\u00fc" * 9, "x" * 4096, "%", " "):
            yield header, f"{scheme} {wrong}".strip()
        yield from ((header, other) for _, other in others if scheme == other.rpartition(" ")[0])
        if scheme:
            yield from ((header, key), (header, f"Basic {key}"))
    yield from (other for other in others if other[0] not in {header for one in schemes for header in KEYS[one]})


@pytest.mark.parametrize("name", documented(401))
async def test_key_is_required_and_verified(house: House, name: str) -> None:
    """Before anything else of a request, and though the caches know good keys."""
    # A client without threads: these are two thousand requests.
    transport = httpx2.ASGITransport(upgradable(house.app), raise_app_exceptions=False)
    http = watched(httpx2.AsyncClient(transport=transport, base_url="http://here"))
    security = OPERATIONS[name][2]["security"]
    schemes = {scheme for one in security for scheme in one}
    own = {header for scheme in schemes for header in KEYS[scheme]}
    for path, scheme in (("/api/v2/speakers", "organizationKey"), ("/api/v1/jobs", "projectKey")):
        assert (await http.get(path, headers=KEYS[scheme])).status_code == 200
    before = len(house.jobs.appended), len(house.sessions.appended), house.speakers.calls
    asked = request(name, keyed=False)
    nonsense = {**asked, "params": {"count": "x", "day": "x"}, "content": b"nonsense"}
    nonsense = {field: value for field, value in nonsense.items() if field not in ("json", "files")}
    # Sockets take a project's key in either header.
    taken = schemes | ({"projectBearer"} if name == "openSession" else set())
    for header, wrong in (("X-Other", "x"), *wrong_keys(taken)):
        sent = [(one.encode(), value.encode("latin-1")) for one, value in (*asked["headers"].items(), (header, wrong))]
        status = 200 if {} in security and not (header in own and wrong) else 401
        for one in (asked, nonsense):
            answer = await http.request(**one | {"headers": sent})
            assert answer.status_code == status, (header, wrong)
            assert answer.headers.get("www-authenticate") == ("Bearer" if "operatorKey" in schemes else None)
    assert before == (len(house.jobs.appended), len(house.sessions.appended), house.speakers.calls)
    metrics = (await http.get("/metrics")).text
    reasons = re.findall(r'earshot_key_failures_total\{kind="\w+",reason="(\w+)"\} [1-9]', metrics)
    assert set(reasons) >= ({"invalid"} if {} in security else {"invalid", "missing"})
    if "operatorKey" not in schemes:
        house.forget_keys()
        house.directory.down = True
        down = await http.request(**request(name))
        # The contract of the job interface has this status for a key that cannot be verified.
        of_jobs = down.json() == {"error": "API key verification failed"}
        assert (down.status_code, down.headers["retry-after"]) == (500 if of_jobs else 503, "5")


LOCKED: Final = everything(NEEDS_KEYS, with_operator=True)["paths"]
#: Operations that a deployment may close to those without a key, besides sockets.
OPEN: Final = [
    name
    for name, (path, method, operation) in OPERATIONS.items()
    if operation["security"] != LOCKED[path][method]["security"] and "101" not in operation["responses"]
]


@pytest.mark.parametrize("name", OPEN)
async def test_deployment_may_require_key_of_one_project(name: str) -> None:
    house = House(NEEDS_KEYS)
    house.directory.keys["another"] = Principal("other project", "organization")
    job, session = house.jobs.create(Options(sound_event_detection=True)), await opened(house)
    house.jobs.perform(job, Service.SOUND)
    asked = request(name, keyed=False, places={"job_id": job, "session_id": session})
    asked["method"] = "head" if name.startswith("follow") else asked["method"]
    transport = httpx2.ASGITransport(house.app)
    async with watched(httpx2.AsyncClient(transport=transport, base_url="http://here"), NEEDS_KEYS) as http:
        keys = ({"X-Api-Key": key} for key in ("", "bad", "another", KEY))
        *refused, good = [await http.request(**asked | {"headers": key}) for key in keys]
    assert [answer.status_code for answer in refused] == [401, 401, 404]
    assert good.is_success, good.text


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
    return client_of(house.app)


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


#: Requests that are wrong in one place, besides those of the tests of their rooms.
WRONG: Final[dict[str, dict[str, Any]]] = {
    "createSessionToo": {"json": {}},
    "listSessionsToo": {"params": {"count": 0}},
    "switchSound": {"json": {"on": "yes"}},
    "markInJob": {"json": {"start": "x", "end": 3}},
    "findInJob": {"params": {"from": "x"}},
    "findInSession": {"params": {"from": "x"}},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_request_returns_400(http: TestClient, name: str) -> None:
    answer = http.request(**request(name, places=_places(http)) | WRONG[name])
    assert answer.status_code == 400, answer.text


def test_socket_is_refused_before_upgrade(http: TestClient) -> None:
    """Clients that offer no subprotocol read the status."""
    for name in documented(101):
        asked = request(name, places=_places(http))
        assert http.request(**asked | {"params": {**asked["params"], "mode": "both"}}).status_code == 400
        elsewhere = {**asked["headers"], "origin": "https://elsewhere.example"}
        assert http.request(**asked | {"headers": elsewhere}).status_code == 403
    assert http.request(**request("joinSession", places={"session_id": UNKNOWN})).status_code == 404


def test_custom_sound_upload_returns_501(http: TestClient) -> None:
    for name in ("createCustomSound", "finishCustomSound"):
        assert http.request(**request(name)).status_code == 501
