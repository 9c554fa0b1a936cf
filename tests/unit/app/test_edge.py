"""The edge around its operations: refusals, failures, probes, metrics, and permitted log content."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match, Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from app.documents.operations import DOCUMENTS
from app.http.metrics import METRICS, merged
from app.identity.keys import ORGANIZATION, PROJECT, KeyRateLimiter, Keyring
from app.main import command_ids
from app.parts import DASHBOARD, JOBS, OPERATOR, SERVICE, SESSIONS
from app.projects.project_bodies import MODELS
from app.senders import sender_of
from app.shortcut import ShortCut
from tests.contract.answers import watched
from tests.contract.api import RAW, UNKNOWN, b64, generic, tone, wav
from tests.unit.app.conftest import KEY, OPTIONS, Exchange, House, client_of
from tests.unit.app.double import MODEL
from tests.unit.app.jobs.conftest import SOUND
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import NotOwned, Unavailable
from topics.geometry import SENSE
from topics.ports.administration import LocalAdministration
from topics.ports.directory import Principal
from topics.sessions.records import NewWindows, Opened
from topics.tally import Tally
from topics.turns import Holder


def create(http: TestClient, **more: Any) -> str:
    answer = http.post("/audio_sessions/", json={"type": "stream", "content_type": RAW, **more})
    return str(answer.json()["session_id"])


def put(http: TestClient, session: str, number: int, data: bytes, **headers: str) -> Any:
    return http.put(f"/audio_sessions/{session}/chunks/{number}", json={"data": b64(data)}, headers=headers)


def test_opening_record_contains_requested_options(house: House, http: TestClient) -> None:
    asked = {
        "type": "file", "content_type": "audio/wav", "total_size": 9, "default_sensitivity": -1, "file_length": 2,
        "tags_sensitivity": {"Siren": 2}, "metadatas": {"room": "hall"}, "file_name": "a.wav", "window_hop": "0.5s",
        "metadata": None, "service": "human-interaction",
    }  # fmt: skip
    session = http.post("/sense/api/v1/audio_sessions/", json=asked).json()["session_id"]
    opened = msgspec.structs.replace(house.sessions.sessions[session].opened, at=0)
    assert opened == Opened(
        opened.command, "file", "audio/wav", "project", SENSE.window_ms, 500, 9, -1, {"Siren": 2}, {"room": "hall"},
        "a.wav", 2.0, MODEL, "organization",
    )  # fmt: skip


def test_chunk_limit_setting_applies_only_to_alias(http: TestClient) -> None:
    session = create(http)
    body = {"data": b64(bytes(1024 * 1024 + 2))}
    generic(http.put(f"/audio_sessions/{session}/chunks/0", json=body), 413)
    assert http.put(f"/sense/api/v1/audio_sessions/{session}/chunks/0", json=body).status_code == 200
    body = {"data": b64(bytes(2 * 1024 * 1024 + 1))}
    refused = http.put(f"/sense/api/v1/audio_sessions/{session}/chunks/1", json=body)
    generic(refused, 413)
    assert "EARSHOT_CHUNK_LIMIT" in refused.headers["earshot-reason"]
    # Also if the body is refused by its length, before it is read.
    longer = http.put(f"/sense/api/v1/audio_sessions/{session}/chunks/1", json={"data": b64(bytes(4 * 1024 * 1024))})
    assert (longer.status_code, "EARSHOT_CHUNK_LIMIT" in longer.headers["earshot-reason"]) == (413, True)


def test_rejected_commands_are_not_appended(house: House, http: TestClient) -> None:
    session = create(http)
    assert put(http, session, 0, tone(0.5)).status_code == 200
    http.patch(f"/audio_sessions/{session}", json={"make_readonly": True})
    before = len(house.sessions.appended)
    generic(put(http, session, 1, tone(0.5)), 403)
    generic(put(http, session, 0, tone(0.5)), 403)
    generic(put(http, UNKNOWN, 0, tone(0.5)), 404)
    generic(http.delete(f"/audio_sessions/{UNKNOWN}"), 404)
    http.patch(f"/audio_sessions/{session}", json={})
    assert len(house.sessions.appended) == before


def test_unrouted_error_has_request_id(http: TestClient) -> None:
    assert http.get("/nothing", headers={"X-Request-Id": "mine"}).headers["x-request-id"] == "mine"
    assert len(http.get("/api/v1/nothing").headers["x-request-id"]) == 16


def test_uncertain_write_must_not_be_repeated(house: House, http: TestClient) -> None:
    for error, said in (
        (Unavailable("the queue is full"), None),
        (Unavailable("the log was too slow", uncertain=True), "false"),
    ):
        house.sessions.failure = error
        creation = http.post("/audio_sessions/", json={"type": "stream", "content_type": RAW})
        assert (creation.status_code, creation.headers.get("x-should-retry")) == (503, said)


def test_internal_error_is_logged_and_not_disclosed(
    house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.sessions, "view", mock.Mock(side_effect=RuntimeError("secret table at /var/rows")))
    with capture_logs() as lines:
        answer = http.get(f"/audio_sessions/{UNKNOWN}/status", headers={"X-Request-Id": "mine-1"})
    generic(answer, 500)
    assert answer.json()["error"] == "Internal Server Error"
    assert answer.headers["x-request-id"] == "mine-1"
    failed = next(line for line in lines if line["event"] == "request failed")
    assert (failed["operation"], failed["request"]) == ("read_status", "mine-1")
    assert isinstance(failed["exc_info"], RuntimeError)


def test_directory_outage_rejects_only_unknown_keys(house: House) -> None:
    body = {"type": "stream", "content_type": RAW}
    with client_of(house) as http:
        assert http.post("/audio_sessions/", json=body, headers={"x-api-key": KEY}).status_code == 200
        house.directory.down = True
        assert http.post("/audio_sessions/", json=body, headers={"x-api-key": KEY}).status_code == 200
        with capture_logs() as lines:
            refused = http.post("/audio_sessions/", json=body, headers={"x-api-key": "another"})
        assert 'earshot_key_failures_total{kind="project",reason="down"} 1.0' in http.get("/metrics").text
    generic(refused, 503)
    assert (refused.headers["retry-after"], "x-should-retry" in refused.headers) == ("5", False)
    assert [(line["log_level"], line["reason"]) for line in lines] == [("warning", "the database does not answer")]
    assert refused.json()["error"] == "API key verification failed"


def test_predict_timeout_returns_503(house: House, http: TestClient) -> None:
    session = create(http)
    house.sessions.paused = True
    answer = http.post(f"/audio_sessions/{session}/predict", json={"data": b64(tone(1))})
    generic(answer, 503, naming="window 0")
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["retry-after"] == "1"


def test_results_report_fallback_model(house: House, http: TestClient) -> None:
    house.sessions.stands_in = True
    session = create(http)
    for path in ("status", "results"):
        answer = http.get(f"/audio_sessions/{session}/{path}")
        assert answer.headers["earshot-note"] == "the intended model cannot be used"


def test_last_window_of_file_appears_after_final_score(house: House, http: TestClient) -> None:
    session = create(http, type="file")
    house.sessions.paused = True
    put(http, session, 0, wav(tone(1)))
    http.patch(f"/audio_sessions/{session}", json={"make_readonly": True})
    cursor = house.sessions.sessions[session].head.cursor
    house.sessions.conclude(session, NewWindows(0, "double@00000000", bytes(5 * 3), cursor, tags=5))
    answer = http.get(f"/audio_sessions/{session}/status")
    assert answer.headers["earshot-model"] == MODEL
    assert "earshot-note" not in answer.headers
    page = answer.json()["inference"]["page"]
    assert (page["count"], page["total"]) == (2, 2)
    house.sessions.conclude(session, NewWindows(3, "double@00000000", b"", cursor, final=True, tags=5))
    last = http.get(f"/audio_sessions/{session}/status", params={"next_token": page["next_token"]}).json()
    assert last["inference"]["page"] == {"count": 1, "offset": 2, "total": 3}


def test_readiness_includes_notes(house: House, http: TestClient) -> None:
    assert http.get("/readyz").json() == {"status": "ok"}
    house.health.told = ["a table was rebuilt", "the database fails"]
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "notes": house.health.told})
    assert http.get("/healthz").json() == {"status": "ok"}
    house.health.dying = house.health.waiting = "the log is read"
    for path in ("/healthz", "/readyz"):
        generic(http.get(path), 503, naming="the log is read")
    assert 'earshot_requests_refused_total{status="503"} 0.0' in http.get("/metrics").text, "a start wakes nobody"


def test_metrics_match_declared_list(http: TestClient) -> None:
    session = create(http)
    audio = tone(0.5)
    put(http, session, 0, audio)
    put(http, session, 0, audio)
    http.get("/nothing")
    http.post("/audio_sessions/", headers={"X-Api-Key": "wrong"})
    text = http.get("/metrics").text
    assert session not in text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(samples["earshot_chunks_accepted_total"]) == 1
    assert float(samples["earshot_audio_bytes_accepted_total"]) == len(audio)
    assert {samples[f'earshot_requests_refused_total{{status="{status}"}}'] for status in (401, 404, 409)} == {"1.0"}
    assert float(samples['earshot_key_failures_total{kind="project",reason="invalid"}']) == 1
    assert float(samples['earshot_request_seconds_count{operation="upload_chunk"}']) == 2
    assert float(samples['earshot_request_seconds_bucket{le="+Inf",operation="upload_chunk"}']) == 2
    assert float(samples["earshot_queue_bytes"]) == 7
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    own = {family.removesuffix("_total") for family in families if not family.startswith("process_")}
    assert own == METRICS.keys() | {"earshot_queue_bytes", "earshot_sockets"}


def test_log_contains_no_keys_audio_or_full_ids(http: TestClient) -> None:
    with capture_logs() as lines:
        session = create(http)
        put(http, session, 0, tone(0.5))
        put(http, session, 5, tone(0.5))
        http.patch(f"/audio_sessions/{session}", json={"make_readonly": True})
        http.delete(f"/audio_sessions/{session}")
    assert [line["event"] for line in lines] == [
        "session created",
        "request refused",
        "session sealed",
        "session deleted",
    ]
    text = repr(lines)
    assert session[:8] in text
    for secret in (KEY, session, base64.b64encode(tone(0.5)).decode()[:40]):
        assert secret not in text


@pytest.mark.parametrize("given", ["", "with space", "x" * 65, "new\u00e9"])
def test_invalid_request_id_is_replaced(http: TestClient, given: str) -> None:
    answer = http.get(f"/audio_sessions/{UNKNOWN}/status", headers=[(b"X-Request-Id", given.encode("latin-1"))])
    assert len(answer.headers["x-request-id"]) == 16


def test_command_ids_are_unique() -> None:
    here, there = command_ids(), command_ids()
    assert len({next(ids) for ids in (here, there) for _ in range(100)}) == 200


def test_edge_works_under_root_path(house: House) -> None:
    with watched(TestClient(house.app, root_path="/behind")) as http:
        generic(http.get(f"/behind/audio_sessions/{UNKNOWN}/status"), 404, naming="session")
        generic(http.put(f"/behind/audio_sessions/{UNKNOWN}/status"), 405)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/chunks/0"), ("POST", "/predict"), ("PATCH", "")])
async def test_unknown_session_is_rejected_before_body(house: House, method: str, path: str) -> None:
    """It would be buffered until it is complete."""
    answer = await Exchange(house, f"/audio_sessions/{UNKNOWN}{path}", method, content_length="1000").end()
    assert answer.status == 404


async def test_incoming_bodies_are_limited(tmp_path: Path) -> None:
    house = House(msgspec.structs.replace(OPTIONS, spool=tmp_path, body_bytes=4000))
    with client_of(house, x_api_key=KEY) as http:
        session = create(http)
    pieces = [b'{"data":"' + b"A" * 4000]
    answer = await Exchange(house, f"/audio_sessions/{session}/chunks/0", "PUT", pieces).end()
    assert answer.status == 503
    assert "retry-after" in answer.headers
    assert b"bodies fill their memory" in answer.body


#: As browsers send it.
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_dashboard_and_docs_can_be_disabled() -> None:
    house = House(msgspec.structs.replace(OPTIONS, dashboard=False, docs=False))
    with client_of(house) as http:
        for path in ("/dashboard", "/dashboard/", "/dashboard/main.js", *DOCUMENTS.table):
            assert http.get(path).status_code in (404, 405), path
        assert http.post("/dashboard/sign-in", json={"token": "x"}).status_code == 404
        assert "docs" not in http.get("/", headers=BROWSER).json()["documentation"]
        assert http.get("/metrics").status_code == 200


@pytest.mark.parametrize(("dashboard", "page"), [(True, "/dashboard/"), (False, "/docs")])
def test_address_of_service_leads_browser_to_a_page(dashboard: bool, page: str) -> None:
    house = House(msgspec.structs.replace(OPTIONS, dashboard=dashboard))
    with client_of(house) as http:
        sent = http.get("/", headers=BROWSER, follow_redirects=False)
        assert (sent.status_code, sent.headers["location"], sent.headers["vary"]) == (302, page, "accept")
        assert http.get(page, headers=BROWSER).headers["content-type"].startswith("text/html")
        assert http.get("/").json()["service"] == "Earshot"
    behind = TestClient(house.app, root_path="/behind").get("/behind/", headers=BROWSER, follow_redirects=False)
    assert behind.headers["location"] == f"/behind{page}"


def test_lanes_add_up_but_the_worst_of_a_shared_disk_counts() -> None:
    kinds = {
        "earshot_windows_total": ("counter", 5),
        "earshot_lag_seconds": ("gauge", 3),
        "earshot_disk_free_bytes": ("gauge", 2),
        "process_open_fds": ("gauge", 3),
    }
    one, two = (
        "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, (kind, _) in kinds.items()).encode()
        for value in (2, 3)
    )
    told = merged([one, two]).decode()
    assert [f"\n{name} {value}.0\n" in told for name, (_, value) in kinds.items()] == [True] * len(kinds)


def test_metrics_and_readiness_details_move_to_operator_address() -> None:
    house = House(msgspec.structs.replace(OPTIONS, admin_apart=True))
    house.health.waiting = "partition 3 is being taken over"
    with client_of(house) as http, watched(TestClient(house.app.state.operator)) as operator:
        assert http.get("/metrics").status_code == 404
        assert "/metrics" not in http.get("/openapi.json").json()["paths"]
        assert "metrics" not in http.get("/").json()["documentation"]
        told, whole = http.get("/readyz"), operator.get("/readyz")
        assert (told.status_code, told.json()["error"]) == (503, "not ready")
        assert (whole.status_code, whole.json()["error"]) == (503, "partition 3 is being taken over")
        assert "earshot_queue_bytes" in operator.get("/metrics").text
        house.health.waiting, house.health.told = None, ["the database fails"]
        assert http.get("/readyz").json() == {"status": "ok"}
        assert operator.get("/readyz").json() == {"status": "ok", "notes": ["the database fails"]}


@pytest.mark.parametrize(("client", "status"), [("10.0.0.1", 200), ("10.0.0.2", 404)])
def test_only_lanes_of_this_machine_reach_what_moves(client: str, status: int) -> None:
    house = House(msgspec.structs.replace(OPTIONS, admin_apart=True))
    with watched(TestClient(house.app.state.inner, "http://10.0.0.1:8001", client=(client, 1))) as http:
        assert http.get("/healthz").status_code == 200
        assert http.get("/metrics").status_code == status


def test_custom_model_is_listed_only_for_projects(house: House) -> None:
    shipped = MODELS.models[0]
    own = msgspec.structs.replace(shipped, id="secret-product@1", shipped=False)
    house.models.in_use = lambda: [own, shipped]
    with client_of(house) as http:
        shown = {key: http.get("/api/v1/models", headers={"X-Api-Key": key}) for key in ("", KEY, "bad")}
    assert [model["id"] for model in shown[""].json()["models"]] == [shipped.id]
    assert [model["id"] for model in shown[KEY].json()["models"]] == ["secret-product@1", shipped.id]
    assert shown["bad"].status_code == 401


HERE, AWAY = "a" * 24, "b" * 24


class Sessions:
    def view(self, session: str) -> Any:
        if session == AWAY:
            raise NotOwned("it is at another node")
        return (
            SimpleNamespace(opened=SimpleNamespace(organization="o", project="of-session")) if session == HERE else None
        )


STRANGER = Holder("", "192.0.2.1")


@pytest.mark.parametrize(
    ("headers", "session", "expected"),
    [
        ({b"x-api-key": b" good "}, HERE, Holder("organization", "of-key", HERE)),
        ({b"authorization": b"bearer good"}, "", Holder("organization", "of-key")),
        ({b"x-org-key": b"good"}, "", Holder("organization", "")),
        ({b"x-api-key": b"unknown"}, HERE, Holder("o", "of-session", HERE)),
        ({}, HERE, Holder("o", "of-session", HERE)),
        ({}, AWAY, STRANGER),
        ({b"x-api-key": b"unknown"}, "c" * 24, STRANGER),
        ({}, "no id", STRANGER),
    ],
)
async def test_sender_is_holder_of_key_or_session_else_address(
    headers: dict[bytes, bytes], session: str, expected: Holder
) -> None:
    scope = {"headers": list(headers.items()), "client": ("192.0.2.1", 1), "path_params": {"session_id": session}}
    assert await _sender(scope) == expected


async def test_reader_of_job_without_key_counts_for_the_job() -> None:
    """The stream of a job needs no key."""
    assert await _sender({"headers": [], "path_params": {"job_id": HERE}}) == Holder("o", "of-job", HERE)


async def test_sender_of_scope_without_route_and_client_is_empty() -> None:
    assert await _sender({"headers": []}) == Holder("", "")


async def _sender(scope: dict[str, Any]) -> Holder:
    async def project(key: str) -> Principal | None:
        return Principal("of-key", "organization")

    async def organization(key: str) -> str | None:
        return "organization"

    tries = KeyRateLimiter(10.0)
    projects, organizations = Keyring(PROJECT, project, 60.0, tries), Keyring(ORGANIZATION, organization, 60.0, tries)
    await projects.holder("good")
    await organizations.holder("good")
    sessions: Any = Sessions()
    job = SimpleNamespace(accepted=SimpleNamespace(organization="o", project="of-job"))
    jobs: Any = SimpleNamespace(view=lambda id: job if id == HERE else None)
    return sender_of(projects, organizations, sessions, jobs)(scope)


def test_what_other_lanes_have_counts() -> None:
    """They have all places, and all tries of unknown keys."""
    options = msgspec.structs.replace(OPTIONS, admin_key=apikeys.digest("the operator's own key"))
    everything = mock.Mock(spec=Tally, **{"total.return_value": 1 << 20})
    house = House(options, administration=mock.Mock(spec=LocalAdministration), tallies=lambda kind: everything)
    kept = house.jobs.create(SOUND, keep_audio_ms=60_000)
    asked = [
        ("GET", f"/api/v1/jobs/{kept}/audio", {}),
        ("POST", "/api/v1/analyze_file", {"content-type": "multipart/form-data; boundary=b"}),
        ("GET", "/api/v1/jobs", {"x-api-key": apikeys.new(KeyKind.PROJECT)}),
        ("GET", "/admin/v1/nodes", {"authorization": "Bearer a guess"}),
    ]
    with client_of(house, x_api_key=KEY) as http:
        statuses = [http.request(method, path, headers=headers).status_code for method, path, headers in asked]
    assert statuses == [503] * len(asked)


TABLES = [(part.prefix, part.table) for part in (SERVICE, SESSIONS, DASHBOARD, JOBS, OPERATOR)]
TABLES.append((SESSIONS.alias, SESSIONS.table))


class Endpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


#: The last one matches other routes' paths, and comes too late.
PATHS = [prefix + path for prefix, table in TABLES for path in table] + ["/audio_sessions/{other}"]
ROUTES = [Route(path, Endpoint()) for path in PATHS]
APP = ShortCut(ROUTES)
PARTS = sorted(
    {part for path in PATHS for part in path.split("/") if "{" not in part} | {"AbC-1", "a b", "{file}", "."}
)


@given(st.lists(st.sampled_from(PARTS), max_size=8).map(lambda parts: "/" + "/".join(parts)))
def test_shortcut_finds_same_route_as_starlette(path: str) -> None:
    scope = {"type": "http", "path": path, "method": "GET"}
    matches = ((route, *route.matches(scope)) for route in ROUTES)
    expected = next(((route, child["path_params"]) for route, match, child in matches if match is Match.FULL), None)
    found = APP._find(path)
    assert found == expected or (found is None and expected is not None and ":" in expected[0].path)


def test_shortcut_finds_every_route_without_path_converter() -> None:
    for route in ROUTES[:-1]:
        filled = route.path.replace("{", "").replace("}", "")
        assert (APP._find(filled) is None) is (":" in route.path)
