"""API9, improper inventory management: only documented paths answer; nothing old or forgotten does."""

import pytest

from app import routes
from app.documents.operations import DOCUMENT_ROUTES
from tests.attacks.owasp.conftest import ENGINE_KEY, Target
from tests.process import ADMIN_KEY, KEY, ORG_KEY, ask

TABLES = {
    "": {**routes.SESSION_ROUTES, **routes.SOCKET_ROUTES},
    routes.JOBS_PREFIX: {**routes.JOB_ROUTES, **routes.PROJECT_ROUTES, **routes.LIVE_ROUTES},
    routes.SPEAKERS_PREFIX: routes.SPEAKER_ROUTES,
    routes.OPENAI_PREFIX: routes.OPENAI_ROUTES,
}
PATHS = [
    *sorted(prefix + path for prefix, table in TABLES.items() for path in table),
    *(routes.SERVICE_ROUTES.keys() - {"/metrics"}),
    *DOCUMENT_ROUTES,
]
FORGOTTEN = [
    "/docs/", "/docs/page.html", "/docs/..%2fmain.py", "/redoc", "/openapi.yaml", "/swagger.json",
    "/graphql", "/debug", "/console", "/.git/HEAD", "/.env",
    "/static/", "/favicon.ico", "/robots.txt", "/server-status", "/actuator", "/api", "/api/v0/jobs/x",
    "/api/v3/speakers",
    "/api/v1/sessions", "/v1/audio/speech", "/v1/audio", "/v1/chat/completions", "/sense/api/v2/audio_sessions/",
    "/sense/api/v1",
    "/sense/api/v1/api/v1/jobs/x", "/sense/api/v1/metrics", "/metrics", "/admin", "/admin/v1", "/admin/v2/usage",
    "/internal",
]  # fmt: skip


@pytest.mark.parametrize("path", FORGOTTEN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_forgotten_paths_do_not_answer(target: Target, method: str, path: str) -> None:
    answer = ask(method, target.url + path, headers={"X-Api-Key": target.alice.key})
    assert answer.status_code in (404, 405)


def test_documents_list_only_public_paths(target: Target) -> None:
    """The public documents list every public path, no key, and no path of the operator, whose address differs."""
    told = {path: ask("GET", target.url + path) for path in DOCUMENT_ROUTES}
    assert {answer.status_code for answer in told.values()} == {200}
    paths = told["/openapi.json"].json()["paths"]
    assert set(PATHS) <= paths.keys()
    assert not any(path.startswith("/admin") for path in paths)
    everything = " ".join(answer.text for answer in told.values())
    secrets = (KEY, ORG_KEY, ADMIN_KEY, ENGINE_KEY, target.mallory.key, target.mallory.org_key)
    for secret in (*secrets, str(target.service.data), target.engines.url, "127.0.0.1"):
        assert secret not in everything
    page = told["/docs"].headers["content-security-policy"]
    assert "default-src 'none'" in page
    assert "unsafe" not in page


def test_version_is_not_disclosed(target: Target) -> None:
    about = ask("GET", f"{target.url}/").json()
    assert set(about) <= {"service", "does", "start", "documentation"}, about
