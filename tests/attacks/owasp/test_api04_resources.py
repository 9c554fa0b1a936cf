"""API4, unrestricted resource consumption: requests have limits, checked before any cost arises.

The attack programs beside these tests cover memory and time under load; these tests cover single requests.
"""

import gzip
import socket

import pytest

from tests.attacks.owasp.conftest import Target
from tests.contract.api import Api

GB = 1 << 30


@pytest.mark.parametrize(
    "line",
    [
        "POST /audio_sessions/",
        "PUT /audio_sessions/{}/chunks/0",
        "POST /api/v1/analyze",
        "POST /api/v1/analyze_file",
        "POST /api/v2/voice",
        "POST /api/v2/recognition",
    ],
)
def test_oversized_content_length_is_rejected_unread(target: Target, api: Api, line: str) -> None:
    key = f"X-Api-Key: {target.alice.key}\r\nX-Org-Key: {target.alice.org_key}"
    with socket.create_connection(("127.0.0.1", target.service.port), 120) as link:
        kind = "multipart/form-data; boundary=b" if "_file" in line or "/v2/" in line else "application/json"
        line = line.format(api.create())
        head = f"{line} HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-Type: {kind}\r\nContent-Length: {100 * GB}\r\n\r\n"
        link.sendall(head.encode())
        answer = link.recv(4096)
    # The speaker interface reports this with status 200.
    assert answer.split()[1] in (b"400", b"413") or b"bigger than 100 MB" in answer


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"a":' * 10_000, b"9" * 60_000, b'"' + b"\\u0041" * 10_000])
def test_malicious_json_is_rejected(target: Target, api: Api, body: bytes) -> None:
    session = api.create()
    for method, path in (
        ("POST", "/audio_sessions/"),
        ("PATCH", f"/audio_sessions/{session}"),
        ("PUT", f"/audio_sessions/{session}/chunks/0"),
        ("POST", "/api/v1/analyze"),
    ):
        answer = api.http.request(method, path, content=body, headers={"X-Api-Key": api.key})
        assert 400 <= answer.status_code < 500, (path, answer.text)


def test_compressed_bodies_are_rejected(api: Api) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    answer = api.http.post("/audio_sessions/", content=bomb, headers={"X-Api-Key": api.key, "Content-Encoding": "gzip"})
    assert answer.status_code == 415
