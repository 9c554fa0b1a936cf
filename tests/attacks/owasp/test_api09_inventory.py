"""API9, improper inventory management: what answers is what is written down, and nothing old or forgotten does."""

from __future__ import annotations

import re

import httpx2
import pytest

from app import routes
from tests.attacks.owasp.conftest import Target
from tests.conftest import ROOT

TABLES = {
    "": routes.SESSION_ROUTES,
    routes.JOBS_PREFIX: routes.JOB_ROUTES,
    routes.SPEAKERS_PREFIX: routes.SPEAKER_ROUTES,
}
PATHS = sorted(prefix + path for prefix, table in TABLES.items() for path in table) + list(routes.SERVICE_ROUTES)
FORGOTTEN = [
    "/docs", "/redoc", "/openapi.json", "/swagger.json", "/graphql", "/debug", "/console", "/.git/HEAD", "/.env",
    "/static/", "/favicon.ico", "/robots.txt", "/server-status", "/actuator", "/api", "/api/v0/jobs/x",
    "/api/v3/speakers",
    "/api/v1/sessions", "/v1/audio/transcriptions", "/v1/chat/completions", "/sense/api/v2/audio_sessions/",
    "/sense/api/v1",
    "/sense/api/v1/api/v1/jobs/x", "/sense/api/v1/metrics", "/admin", "/admin/v1", "/admin/v2/usage", "/internal",
]  # fmt: skip


@pytest.mark.parametrize("path", FORGOTTEN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_forgotten_answers(target: Target, method: str, path: str) -> None:
    answer = httpx2.request(method, target.url + path, headers={"X-Api-Key": target.alice.key})
    assert answer.status_code in (404, 405)


@pytest.mark.parametrize("path", PATHS)
def test_what_answers_is_written_down(path: str) -> None:
    """Every path of the interface stands in a page for users, with any name for its parameters."""
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    pieces = [re.escape(piece) for piece in re.split(r"\{\w+\}", path.rstrip("/") or "/")]
    short = pieces[-1] if path.endswith(".srt") else None
    pattern = r"[^\s`]+".join(pieces)
    assert re.search(pattern, pages) or (short and r".srt" in pages), f"no page of docs/ names {path}"


def test_the_alias_asks_for_what_its_original_asks(target: Target) -> None:
    """Both generations of the session interface are the same code, with the same locks."""
    for prefix in ("", routes.SENSE_PREFIX):
        assert httpx2.post(f"{target.url}{prefix}/audio_sessions/", json={}).status_code == 401
        assert httpx2.get(f"{target.url}{prefix}/audio_sessions/{'x' * 24}/status").status_code == 404


def test_no_version_is_told(target: Target) -> None:
    about = httpx2.get(f"{target.url}/").json()
    assert set(about) <= {"service", "does", "start", "documentation"}, about
