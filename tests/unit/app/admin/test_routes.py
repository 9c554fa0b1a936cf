"""The operator's interface over HTTP: every route, its authorization, its refusals, and the rows of usage."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from structlog.testing import capture_logs

from app.admin import operations
from app.admin import usage_rows as rows
from app.admin.guard import AdminContext
from app.admin.usage_rows import LineRow, TotalRow, as_csv, paged, texts
from app.http import streaming
from app.http.call import Call
from app.http.metrics import Meters
from app.http.replies import StreamReply
from app.parts import OPERATOR
from infra.db.database import Database
from infra.service.administration import SqlAdministration
from tests.contract.answers import watched
from tests.unit.app import conftest as edges
from tests.unit.app.admin.house import KEY, NOVEMBER, URL, House, house, interface
from topics import apikeys
from topics.ports.administration import UsageFilter, UsageTotal
from topics.ports.ledger import Charge, MeteredService

ENDS = {"POST": "/key", "PUT": "/plan", "DELETE": ""}
__all__ = ["house"]
#: Every operation; those on a project or organization use `Zoo`.
ROUTES = [
    (method, path.replace("{reference:path}", f"Zoo{ENDS.get(method)}"))
    for path, handlers in OPERATOR.table.items()
    for method in handlers
]


async def test_separate_operator_address_serves_only_operator_routes(tmp_path: Path) -> None:
    """The public application then lacks these routes; the operator's has only them and the metrics of both."""
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/earshot.db")
    edge = edges.House(
        msgspec.structs.replace(edges.OPTIONS, admin_key=apikeys.digest(KEY), admin_apart=True),
        administration=SqlAdministration(database),
    )

    async def statuses(app: Starlette, *paths: str) -> list[int]:
        async with watched(httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=URL)) as http:
            return [(await http.get(path)).status_code for path in paths]

    paths = ("/admin/v1/usage", "/healthz", "/", "/metrics", "/tags/official")
    assert await statuses(edge.app, *paths) == [404, 200, 200, 404, 200]
    assert await statuses(edge.app.state.operator, *paths) == [401, 404, 404, 200, 404]
    # No redirection, whose address would be made of the Host header.
    assert await statuses(edge.app.state.operator, "/readyz/", "/admin/v1/usage/") == [404, 404]
    async with watched(
        httpx2.AsyncClient(transport=httpx2.ASGITransport(edge.app.state.operator), base_url=URL)
    ) as http:
        assert (await http.get("/admin/v1/nothing")).json() == {"error": "Not Found"}
        told = (await http.get("/metrics")).text
        assert 'earshot_key_failures_total{kind="admin",reason="missing"} 1.0' in told
    await edge.app.state.forwarder.close()
    await database.close()


async def test_project_lifecycle(house: House) -> None:
    zoo, _ = await house.accounts.create_organization("Zoo")
    await house.accounts.create_organization("Farm")
    made = await house.http.post("/projects", json={"name": "apes", "organization": "Zoo"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    key, shown = made.json()["key"], made.json()["project"]
    assert (shown["organization"], shown["free_seconds"]) == (zoo.id, None)
    assert (await house.http.get("/projects", params={"organization": "Zoo"})).json() == [shown]
    assert (await house.http.get("/projects?organization=Farm")).json() == []
    for free in 1200, None:
        assert (await house.http.put("/projects/apes/plan", json={"free_seconds": free})).status_code == 204
        (listed,) = (await house.http.get("/projects")).json()
        assert listed == {**shown, "free_seconds": free}
    rotated = await house.http.post("/projects/apes/key")
    assert (rotated.status_code, rotated.headers["cache-control"]) == (200, "no-store")
    assert await house.accounts.project_of(key) is None
    assert await house.accounts.project_of(rotated.json()["key"])
    assert (await house.http.delete("/projects/apes")).status_code == 204
    assert (await house.http.get("/projects")).json() == []
    assert [one["name"] for one in (await house.http.get("/organizations")).json()] == ["Farm", "Zoo"]


async def test_usage_is_filtered_and_itemized(house: House) -> None:
    zoo, apes = await house.used()
    october = {
        "month": "2026-10",
        "project": "apes",
        "service": "sound_event_detection",
        "jobs": 1,
        "audio_seconds": 61.001,
        "models": "yamnet@1",
        "project_id": apes,
        "organization_id": zoo,
    }
    assert (await house.http.get("/usage?month=2026-10&project=apes&organization=Zoo")).json() == [october]
    speech = (await house.http.get("/usage?service=speech_analysis")).json()
    assert [(row["month"], row["models"]) for row in speech] == [("2026-11", "=cmd")]
    assert (await house.http.get("/usage", params={"project": "b" * 24})).json() == []
    lines = (await house.http.get("/usage?lines=true")).json()
    assert [(row["job"], row["accepted_at"][:10]) for row in lines] == [
        ("j2", "2026-10-31"),
        ("j1", "2026-11-01"),
        ("j1", "2026-11-01"),
    ]


async def test_usage_as_csv(house: House) -> None:
    empty = await house.http.get("/usage?format=csv")
    assert empty.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert empty.text == "month,project,service,jobs,audio_seconds,models,project_id,organization_id\n"
    await house.used()
    asked = await house.http.get("/usage?lines=true", headers={"Accept": "text/csv, */*;q=0.1"})
    _, sound, speech = csv.DictReader(io.StringIO(asked.text))
    assert (sound["audio_seconds"], sound["model"]) == ("61.001", "yamnet@1")
    assert (speech["audio_seconds"], speech["model"]) == ("61.000", "'=cmd")
    chosen = await house.http.get("/usage?format=json", headers={"Accept": "text/csv"})
    assert len(chosen.json()) == 3


@pytest.mark.parametrize("form", ["json", "csv"])
async def test_ledger_lines_are_read_lazily(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(streaming, "PIECE_BYTES", 300)
    asked = 0

    async def lines(period: UsageFilter) -> AsyncGenerator[list[Charge], None]:
        nonlocal asked
        while True:
            asked += 1
            yield [Charge("j" * 24, MeteredService.SOUND, "p" * 24, "o" * 24, 1, "m", NOVEMBER)]

    nothing: Any = None
    endless: Any = mock.Mock(lines=lines)
    scope = {"method": "GET", "headers": [], "query_string": f"lines=true&format={form}".encode()}
    reply = await operations.read_usage.handler(
        Call(scope, nothing, nothing), AdminContext(endless, nothing, Meters(tuple), nothing, nothing, b"")
    )
    assert isinstance(reply, StreamReply)
    begun = asked
    assert begun < 4
    for more in range(3):
        assert await anext(reply.pieces)
        assert asked == begun + more
    await reply.pieces.aclose()


async def test_routes_return_404_without_configured_key(house: House) -> None:
    app = interface(house.accounts, house.meters, key=None)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), headers=house.http.headers) as http:
        for method, path in ROUTES:
            answer = await http.request(method, f"{URL}/admin/v1{path}")
            assert answer.status_code == 404


REFUSED = [
    ("POST", "/organizations", b"", 400, "body: empty"),
    ("POST", "/organizations", b"{", 400, "body: not JSON"),
    ("POST", "/organizations", b"{}", 400, "name: required"),
    ("POST", "/organizations", b'{"name": 1}', 400, "name: "),
    ("POST", "/organizations", b'{"name": "x", "key": "chosen"}', 400, "key"),
    ("POST", "/organizations", b'{"name": ""}', 400, "a name has 1 to 40"),
    ("POST", "/organizations", b'{"name": "Zoo"}', 400, "exists already"),
    ("POST", "/organizations", b'{"name": "' + b"x" * 65536 + b'"}', 413, "longer than"),
    ("POST", "/projects", b'{"name": "apes"}', 400, "exists already"),
    ("POST", "/projects", b'{"name": "x", "organization": "Farm"}', 404, "no organization 'Farm'"),
    ("POST", "/projects", b'{"name": "x", "organization": "a\\u0000"}', 404, "no organization"),
    ("POST", "/projects", b'{"name": "x", "free_seconds": 5}', 400, "free_seconds"),
    ("PUT", "/projects/apes/plan", b"{}", 400, "free_seconds: required"),
    ("PUT", "/projects/apes/plan", b'{"free_seconds": -1}', 400, "free seconds"),
    ("PUT", "/projects/apes/plan", b'{"free_seconds": true}', 400, "free_seconds: "),
    ("PUT", "/projects/apes/plan", b'{"free_seconds": 1e400}', 400, ""),
    ("PUT", "/projects/bats/plan", b'{"free_seconds": 1}', 404, "no project 'bats'"),
    ("DELETE", "/projects/bats", b"", 404, "no project 'bats'"),
    ("DELETE", "/organizations/%00", b"", 404, "no organization"),
    ("DELETE", "/organizations/", b"", 404, "no organization ''"),
    ("POST", "/organizations/%FF/key", b"", 404, "no organization"),
    ("POST", "/projects/bats/key", b"", 404, "no project 'bats'"),
    ("GET", "/projects?organization=Farm", b"", 404, "no organization 'Farm'"),
    ("GET", "/projects?organisation=Zoo", b"", 400, "organisation: not a parameter"),
    ("GET", "/usage?projekt=apes", b"", 400, "projekt: not a parameter"),
    ("GET", "/usage?project=bats", b"", 404, "no project 'bats'"),
    ("GET", "/usage?project=%00", b"", 404, "no project"),
    ("GET", "/usage?organization=", b"", 404, "no organization ''"),
    *[("GET", f"/usage?month={month}", b"", 400, "month: ") for month in ("2026-13", "26-1", "2026-1", "")],
    ("GET", "/usage?service=music", b"", 400, "service: must be one of"),
    ("GET", "/usage?format=xml", b"", 400, "format: must be one of"),
    ("GET", "/usage?lines=1", b"", 400, "lines: must be one of"),
    ("POST", "/organizations/Zoo", b"", 404, "Not Found"),
    ("POST", "/projects/apes/plan", b"", 404, "Not Found"),
    ("PUT", "/projects/apes/key", b'{"free_seconds": 1}', 404, "Not Found"),
    ("PATCH", "/projects", b"", 405, "Method Not Allowed"),
    ("GET", "/projects/apes", b"", 405, "Method Not Allowed"),
]


async def test_invalid_requests_change_nothing(house: House) -> None:
    await house.accounts.create_organization("Zoo")
    await house.accounts.create_project("apes")
    before = await house.accounts.organizations(), await house.accounts.projects()
    for method, path, body, status, error in REFUSED:
        answer = await house.http.request(method, path, content=body)
        said = answer.json()
        assert (answer.status_code, list(said)) == (status, ["error"]), (method, path, body[:60], said)
        assert error in said["error"], (method, path, body[:60])
    assert before == (await house.accounts.organizations(), await house.accounts.projects())


async def test_ambiguous_name_is_rejected(house: House) -> None:
    for organization in ("Zoo", "Farm"):
        await house.accounts.create_organization(organization)
        await house.accounts.create_project("twin", organization)
    for method, path in (("POST", "/projects/twin/key"), ("DELETE", "/projects/twin")):
        answer = await house.http.request(method, path)
        assert (answer.status_code, "several projects 'twin'" in answer.json()["error"]) == (400, True)
    assert len(await house.accounts.projects()) == 2


async def test_unreachable_database_returns_503() -> None:
    away = Database("postgresql+asyncpg://earshot:secret@127.0.0.1:9/earshot")
    app = interface(SqlAdministration(away), Meters(tuple))
    headers = {"Authorization": f"bearer  {KEY} "}
    async with watched(httpx2.AsyncClient(transport=httpx2.ASGITransport(app), headers=headers)) as http:
        answer = await http.get(f"{URL}/admin/v1/organizations")
    await away.close()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"].startswith("the database does not answer")


async def test_changes_are_logged_without_keys(house: House) -> None:
    with capture_logs() as lines:
        made = await house.http.post("/organizations", json={"name": "Zoo"})
        rotated = await house.http.post("/organizations/Zoo/key")
        await house.http.get("/organizations", headers={"Authorization": "Bearer of another key"})
    assert [(one.status_code, one.headers["cache-control"]) for one in (made, rotated)] == [
        (201, "no-store"),
        (200, "no-store"),
    ]
    secrets = [KEY, "another key", made.json()["key"], rotated.json()["key"]]
    assert [(line["event"], line["operation"]) for line in lines] == [
        ("administered", "create_organization"),
        ("administered", "rotate_organization_key"),
        ("request refused", "list_organizations"),
    ]
    assert not [secret for secret in secrets if secret in json.dumps(lines)]


TOTAL = UsageTotal("2026-11", "p", "apes", "o", MeteredService.SOUND, 2, 3_000_000_000_001, ("a@1", "b@2"))
CHARGE = Charge("j", MeteredService.SPEECH, "p", "o", 1234, "m", 1_793_491_199_999)


def as_text(kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> str:
    async def story() -> str:
        return "".join([text async for text in as_csv(kind, paged(rows))])

    return asyncio.run(story())


@given(st.integers(0, 10**15), st.integers(0, 4 * 10**12), st.sampled_from(["apes", None]))
@settings(max_examples=50, deadline=None)
def test_rows_survive_round_trip(audio_ms: int, at_ms: int, name: str | None) -> None:
    total = msgspec.structs.replace(TOTAL, audio_ms=audio_ms, name=name)
    charge = msgspec.structs.replace(CHARGE, audio_ms=audio_ms, at_ms=at_ms)
    assert msgspec.json.decode(msgspec.json.encode(TotalRow.of(total)), type=TotalRow).total() == total
    assert msgspec.json.decode(msgspec.json.encode(LineRow.of(charge)), type=LineRow).charge() == charge
    assert texts(LineRow.of(charge))[3] == f"{audio_ms // 1000}.{audio_ms % 1000:03d}"


def test_line_contains_only_prefix_of_job_id() -> None:
    line = LineRow.of(msgspec.structs.replace(CHARGE, job="4bG4kCD3jAgwG3rLuU1AvCkY"))
    assert line.job == line.charge().job == "4bG4kCD3"


def test_row_as_text() -> None:
    row = ["2026-11", "apes", "sound_event_detection", "2", "3000000000.001", "a@1, b@2", "p", "o"]
    assert texts(TotalRow.of(TOTAL)) == row
    assert texts(LineRow.of(CHARGE))[0] == "2026-10-31T23:59:59.999+00:00"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "＝1", " =1", "\t=1", "\r=1", "\n=1"])
def test_formula_cells_are_escaped(name: str) -> None:
    row = TotalRow.of(msgspec.structs.replace(TOTAL, name=name, models=(name,)))
    text = as_text(TotalRow, [row])
    _, cells = csv.reader(io.StringIO(text, newline=""))
    assert cells[1] == cells[5] == "'" + "".join(letter if letter.isprintable() else " " for letter in name)


@pytest.mark.parametrize("name", ["a, b", 'say "hi"', "1-1", "a'b;c"])
def test_other_cells_are_unchanged(name: str) -> None:
    text = as_text(TotalRow, [TotalRow.of(msgspec.structs.replace(TOTAL, name=name))])
    assert list(csv.reader(io.StringIO(text, newline="")))[1][1] == name


def test_control_characters_become_spaces() -> None:
    row = LineRow.of(msgspec.structs.replace(CHARGE, model="a\r\nb\x1b[2Jc"))
    assert texts(row)[4] == "a  b [2Jc"


async def test_pages_cover_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PAGE", 2)
    assert [page async for page in paged(range(5))] == [range(2), range(2, 4), range(4, 5)]


def test_empty_table_has_header() -> None:
    assert as_text(LineRow, []) == "accepted_at,job,service,audio_seconds,model,project_id,organization_id,step\n"
