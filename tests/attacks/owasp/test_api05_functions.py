"""API5, broken function level authorization: the operator's interface, other methods, other spellings of a path."""

from __future__ import annotations

import socket

import pytest

from app.admin.wire import PREFIX
from app.routes import ADMIN_ROUTES
from tests.attacks.owasp.conftest import Target
from tests.contract.api import Api
from tests.process import ADMIN_KEY, ask

OPERATIONS = [(method, path) for path, handlers in ADMIN_ROUTES.items() for method in handlers]
BEARER = {"authorization": f"Bearer {ADMIN_KEY}"}


def raw(target: Target, line: str, *headers: str) -> int:
    """Send a request line as it is; return the status."""
    with socket.create_connection(("127.0.0.1", target.service.port), 120) as link:
        link.sendall("\r\n".join([line, "Host: x", "Connection: close", *headers, "", ""]).encode("latin-1"))
        answer = link.recv(4096)
    return int(answer.split()[1])


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_operators_functions(target: Target, method: str, path: str) -> None:
    path = PREFIX + path.replace("{reference:path}", "demo")
    assert ask(method, target.url + path, headers=BEARER).status_code == 404, "not where clients are"
    for headers in (
        {},
        {"X-Api-Key": target.alice.key},
        {"X-Org-Key": target.alice.org_key},
        {"authorization": f"Bearer {target.alice.org_key}"},
        {"authorization": f"Basic {ADMIN_KEY}"},
        {"X-Api-Key": ADMIN_KEY},
    ):
        assert ask(method, target.admin + path, headers=headers).status_code == 401


def test_nothing_else_answers_at_the_operators_address(target: Target) -> None:
    for path in ("/", "/healthz", "/audio_sessions/", "/api/v1/jobs/x", "/tags/official"):
        assert ask("GET", target.admin + path, headers=BEARER).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/ADMIN/v1/usage",
        "//admin/v1/usage",
        "/./admin/v1/usage",
        "/api/../admin/v1/usage",
        "/api/v1/..%2f..%2fadmin/v1/usage",
        "/%61dmin/v1/usage",
        "/admin%2fv1/usage",
        "/admin/v1/usage;x=1",
        "/admin/v1/usage/..",
        "/admin/v1/usage\\",
        "http://127.0.0.1/admin/v1/usage",
    ],
)
def test_other_spellings(target: Target, path: str) -> None:
    assert raw(target, f"GET {path} HTTP/1.1", f"Authorization: Bearer {ADMIN_KEY}") in (400, 404)


def test_methods(target: Target, api: Api) -> None:
    session = api.create()
    for method in ("TRACE", "CONNECT", "OPTIONS", "PUT", "PROPFIND", "FOO"):
        assert raw(target, f"{method} /audio_sessions/{session} HTTP/1.1") in (400, 404, 405)
    for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        answer = api.http.get(
            f"/audio_sessions/{session}/status", headers={name: "DELETE"}, params={"_method": "DELETE"}
        )
        assert answer.status_code == 200
    assert api.status(session).status_code == 200, "it is still there"
