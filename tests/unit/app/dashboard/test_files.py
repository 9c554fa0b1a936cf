"""The dashboard's files over HTTP, their browser policies, and their permitted content."""

import gzip
import re

import msgspec
import pytest
from starlette.testclient import TestClient

from app.dashboard import files
from tests.unit.app.conftest import Exchange, House
from topics.alarms import rules
from topics.ports.sign_ins import SignIn


@pytest.mark.parametrize("name", sorted(files.names() | {""}))
def test_every_file_is_served_with_security_headers(http: TestClient, name: str) -> None:
    answer = http.get(f"/dashboard/{name}")
    assert answer.content == (files.DIRECTORY / (name or "index.html")).read_bytes()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    again = http.get(f"/dashboard/{name}", headers={"If-None-Match": f"W/{answer.headers['etag']}"})
    assert (again.status_code, again.content) == (304, b"")


def test_files_are_gzipped_on_request(http: TestClient) -> None:
    with http.stream("GET", "/dashboard/", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-frame-options"] == "DENY"
    assert gzip.decompress(packed) == (files.DIRECTORY / "index.html").read_bytes()
    plain = http.get("/dashboard/", headers={"Accept-Encoding": "identity", "If-None-Match": answer.headers["etag"]})
    assert plain.status_code == 200, "a strong tag is of the same bytes"
    assert plain.headers["etag"] != answer.headers["etag"]
    again = {"Accept-Encoding": "gzip", "If-None-Match": answer.headers["etag"]}
    assert http.get("/dashboard/", headers=again).status_code == 304


@pytest.mark.parametrize(
    "name", ["../files.py", "../static/main.js", "views", "none.js", "views/../main.js", "./main.js", "\0", "vendor/"]
)
async def test_other_paths_are_not_served(house: House, name: str) -> None:
    """As a server passes them on; clients would normalize them."""
    assert (await Exchange(house, f"/dashboard/{name}").end()).status == 404


def test_first_view_is_small() -> None:
    """Compressed bytes of scripts and styles."""
    page = (files.DIRECTORY / "index.html").read_text()
    names = {"main.js", *re.findall(r'(?:modulepreload|stylesheet)" href="([^"]+)"', page)}
    assert sum(len(files.read(name).packed) for name in names) < 24_000


def test_first_view_preloads_all_modules() -> None:
    """Otherwise a browser discovers modules one after another."""
    loaded = re.findall(r'modulepreload" href="([^"]+)"', (files.DIRECTORY / "index.html").read_text())
    asked = {*loaded, "main.js"}
    for name in asked:
        text = (files.DIRECTORY / name).read_text()
        imports = re.findall(r'^(?:import|export) .*?from ?"(\.[^"]+)"', text, re.MULTILINE)
        beside = (files.DIRECTORY / name).parent
        for one in imports:
            path = (beside / one).resolve().relative_to(files.DIRECTORY.resolve()).as_posix()
            assert path in asked, f"{name} imports {path}"


def test_files_have_no_external_or_inline_code() -> None:
    for name in files.names():
        text = (files.DIRECTORY / name).read_text()
        if name.endswith((".html", ".css")):
            assert not re.search(r"https?://(?!www\.w3\.org)|\son\w+=|style=|<script>", text), name
        elif name.endswith(".js"):
            assert not re.search(
                r"innerHTML|eval\(|new Function|localStorage|document\.cookie|style=|https?://", text
            ), name


def test_form_knows_what_kinds_of_rules_use_and_what_other_fields_have() -> None:
    used, empty = [
        msgspec.json.decode(re.sub(r"([{,] ?)(\w+):", r'\1"\2":', found))
        for found in re.findall(r"const (?:USED|EMPTY) = ({.*});", (files.DIRECTORY / "rule-form.js").read_text())
    ]
    assert used == {when: [*fields] for when, fields in rules._USED.items()}
    for when in used:
        others = rules.unused(when)
        assert {field: empty[field] for field in others} == msgspec.json.decode(msgspec.json.encode(others))


@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 1}, {"token": "x" * 300}, {"token": "a", "more": 1}, []])
def test_invalid_sign_in_body_returns_400(http: TestClient, body: object) -> None:
    assert http.post("/dashboard/sign-in", json=body).status_code == 400
    assert http.post("/dashboard/sign-out", json=body).status_code == 400


def test_sign_in_to_project_alone(house: House, http: TestClient) -> None:
    house.sign_ins.redeem.return_value = SignIn("pass_p", None)
    assert http.post("/dashboard/sign-in", json={"token": "t"}).json() == {"project": "pass_p", "organization": None}


def test_address_without_slash_is_redirected(http: TestClient) -> None:
    moved = http.get("/dashboard", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "/dashboard/")
