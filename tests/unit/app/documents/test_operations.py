"""The documents over HTTP: generated once, with ETags, and shown by a page without external resources."""

import re
import subprocess
import sys
from typing import Any
from unittest import mock

import msgspec
import pytest
from starlette.testclient import TestClient

from app.documents import build
from app.documents.operations import DOCUMENTS, page_file
from app.http.cross_origin import READ, SENT
from tests.contract.answers import DOCUMENT, watched
from tests.contract.api import RAW, b64, silence
from tests.unit.app.conftest import KEY, OPTIONS, House
from topics import apikeys

ORIGIN = "https://app.example.org"


@pytest.mark.parametrize("path", DOCUMENTS.table)
def test_document_is_built_once_and_has_etag(monkeypatch: pytest.MonkeyPatch, http: TestClient, path: str) -> None:
    made = mock.Mock(wraps=build.build)
    monkeypatch.setattr(build, "build", made)
    first = http.get(path)
    assert first.status_code == 200
    again = http.get(path, headers={"If-None-Match": f'W/"x", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert http.head(path).headers["etag"] == first.headers["etag"]
    assert made.call_count == 1


def test_import_loads_no_document_modules() -> None:
    program = "import sys, app.main; print([name for name in sys.modules if 'openapi' in name])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_docs_page_loads_nothing_external(http: TestClient) -> None:
    answer = http.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    assert not re.search(r"<script>|<style>| style=| on\w+=|https?://", answer.text)
    assert set(re.findall(r'(?:src|href)="([^"#]*)', answer.text)) <= {
        "",
        "docs/page.js",
        "docs/page.css",
        "openapi.json",
    }
    script = page_file("page.js").decode()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://", script
    )
    assert "@import" not in page_file("page.css").decode()


@pytest.mark.parametrize("apart", [True, False])
def test_operator_paths_are_shown_only_if_served(apart: bool) -> None:
    options = msgspec.structs.replace(OPTIONS, admin_key=apikeys.digest("k" * 20), admin_apart=apart)
    house = House(options, administration=object())
    shown = watched(TestClient(house.app)).get("/openapi.json").json()
    assert any(path.startswith("/admin/") for path in shown["paths"]) is not apart


# --- other origins --------------------------------------------------------------------------------------------------


def cross(*origins: str) -> TestClient:
    """Return a client of a service that allows pages of these origins."""
    house = House(msgspec.structs.replace(OPTIONS, cors_origins=origins))
    return TestClient(house.app, headers={"X-Api-Key": KEY})


def preflight(http: TestClient, path: str, origin: str = ORIGIN) -> Any:
    """Send a browser's preflight request."""
    asked = {"Origin": origin, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-api-key"}
    return http.options(path, headers=asked)


def test_cors_is_disabled_by_default(http: TestClient) -> None:
    assert "access-control-allow-origin" not in http.get("/", headers={"Origin": ORIGIN}).headers
    assert preflight(http, "/audio_sessions/").status_code == 405


def test_configured_origins_are_allowed() -> None:
    http = cross(ORIGIN, "http://localhost:3000")
    for origin in (ORIGIN, "http://localhost:3000"):
        answer = http.post("/audio_sessions/", json={"type": "stream", "content_type": RAW}, headers={"Origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in answer.headers
        assert set(answer.headers["access-control-expose-headers"].split(", ")) == set(READ)
        chunk = f"/audio_sessions/{answer.json()['session_id']}/chunks/0"
        taken = http.put(chunk, json={"data": b64(silence(0.5))}, headers={"Origin": origin})
        assert (taken.status_code, taken.headers["access-control-allow-origin"]) == (200, origin)
        allowed = preflight(http, chunk, origin)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == origin
        assert "PUT" in allowed.headers["access-control-allow-methods"]
        assert set(SENT) <= set(allowed.headers["access-control-allow-headers"].split(", "))
        assert allowed.headers["vary"].startswith("Origin")


@pytest.mark.parametrize(
    "origin", ["https://app.example.org.evil.example", "null", "http://app.example.org", "https://other"]
)
def test_other_origins_are_rejected(origin: str) -> None:
    http = cross(ORIGIN)
    assert "access-control-allow-origin" not in http.get("/", headers={"Origin": origin}).headers
    refused = preflight(http, "/audio_sessions/", origin)
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers


def test_errors_have_cors_headers() -> None:
    answer = cross(ORIGIN).post("/api/v1/analyze", json={}, headers={"Origin": ORIGIN, "X-Api-Key": "wrong"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, ORIGIN)


def test_cors_covers_all_documented_headers() -> None:
    operations = [one for item in DOCUMENT["paths"].values() for one in item.values() if isinstance(one, dict)]
    answers = {name for one in operations for answer in one["responses"].values() for name in answer.get("headers", ())}
    # Answers for browsers, proxies and other nodes.
    assert answers - set(READ) <= {
        "Cache-Control",
        "X-Accel-Buffering",
        "Content-Security-Policy",
        "Location",
        "Www-Authenticate",
        "Earshot-Process",
        "Earshot-Standbys",
    }
    asked = {one["name"] for operation in operations for one in operation["parameters"] if one["in"] == "header"}
    assert asked <= set(SENT)
