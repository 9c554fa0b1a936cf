"""API5, broken function level authorization: the operator's interface, other methods, other spellings of a path."""

import socket

import pytest

from tests.attacks.owasp.conftest import Target
from tests.contract.api import Api
from tests.process import ADMIN_KEY


def raw(target: Target, line: str, *headers: str) -> int:
    """Send a request line unchanged; return the status."""
    with socket.create_connection(("127.0.0.1", target.service.port), 120) as link:
        link.sendall("\r\n".join([line, "Host: x", "Connection: close", *headers, "", ""]).encode("latin-1"))
        answer = link.recv(4096)
    return int(answer.split()[1])


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
def test_admin_path_variants_are_rejected(target: Target, path: str) -> None:
    assert raw(target, f"GET {path} HTTP/1.1", f"Authorization: Bearer {ADMIN_KEY}") in (400, 404)


def test_other_methods_and_overrides_have_no_effect(target: Target, api: Api) -> None:
    session = api.create()
    for method in ("TRACE", "CONNECT", "OPTIONS", "PUT", "PROPFIND", "FOO"):
        assert raw(target, f"{method} /audio_sessions/{session} HTTP/1.1") in (400, 404, 405)
    for name in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        answer = api.http.get(
            f"/audio_sessions/{session}/status", headers={name: "DELETE"}, params={"_method": "DELETE"}
        )
        assert answer.status_code == 200
    assert api.status(session).status_code == 200, "it is still there"
