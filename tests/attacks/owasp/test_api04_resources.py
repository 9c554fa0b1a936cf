"""API4, unrestricted resource consumption: what a request can ask for has a bound, and is refused before it is paid.

Memory and time under load are the business of the programs beside these tests; here it is about single requests.
"""

from __future__ import annotations

import gzip
import socket
import time

import httpx2
import pytest

from tests.attacks.owasp.conftest import Target, recording
from tests.contract.api import Api, tone
from tests.contract.jobs import SOUND, Jobs

GB = 1 << 30


@pytest.mark.parametrize(
    "path", ["/audio_sessions/", "/api/v1/analyze", "/api/v1/analyze_file", "/api/v2/voice", "/api/v2/recognition"]
)
def test_an_announced_length_is_refused_unread(target: Target, path: str) -> None:
    key = f"X-Api-Key: {target.alice.key}\r\nX-Org-Key: {target.alice.org_key}"
    with socket.create_connection(("127.0.0.1", target.service.port), 10) as link:
        kind = "multipart/form-data; boundary=b" if "_file" in path or "/v2/" in path else "application/json"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}\r\nContent-Type: {kind}\r\nContent-Length: {100 * GB}\r\n\r\n"
        link.sendall(head.encode())
        answer = link.recv(4096)
    # The speaker interface says so in an answer of status 200.
    assert answer.split()[1] in (b"400", b"413") or b"bigger than 100 MB" in answer


def test_counts_and_offsets_have_bounds(api: Api) -> None:
    session = api.create()
    api.send(session, tone(3))
    for query in (
        {"count": 10**9},
        {"count": 10**30},
        {"offset": 10**30},
        {"count": -1},
        {"offset": -5},
        {"count": "1e9"},
    ):
        answer = api.status(session, **query)
        assert answer.status_code in (200, 400)
        assert len(answer.content) < 1 << 20
    started = time.monotonic()
    assert api.status(session, offset=10**14).status_code in (200, 400)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"a":' * 10_000, b"9" * 60_000, b'"' + b"\\u0041" * 10_000])
def test_rude_json(target: Target, api: Api, body: bytes) -> None:
    session = api.create()
    for method, path in (
        ("POST", "/audio_sessions/"),
        ("PATCH", f"/audio_sessions/{session}"),
        ("PUT", f"/audio_sessions/{session}/chunks/0"),
        ("POST", "/api/v1/analyze"),
    ):
        answer = api.http.request(method, path, content=body, headers={"X-Api-Key": api.key})
        assert 400 <= answer.status_code < 500, (path, answer.text)


def test_packed_bodies_are_not_unpacked(api: Api) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    answer = api.http.post("/audio_sessions/", content=bomb, headers={"X-Api-Key": api.key, "Content-Encoding": "gzip"})
    assert answer.status_code == 400


def test_forms_of_many_parts_and_long_headers(target: Target) -> None:
    keyed = {"X-Api-Key": target.alice.key}
    many = {f"f{number}": (None, "x") for number in range(500)}
    assert httpx2.post(f"{target.url}/api/v1/analyze_file", files=many, headers=keyed).status_code in (400, 413, 422)
    for part in ("a" * 60_000, 'form-data; name="audio"; ' + "a=b; " * 10_000):
        body = f"--b\r\nContent-Disposition: {part}\r\n\r\nx\r\n--b--\r\n".encode()
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = httpx2.post(f"{target.url}/api/v1/analyze_file", content=body, headers=keyed | kind)
        assert 400 <= answer.status_code < 500


def test_long_options(jobs: Jobs) -> None:
    for name, value in (
        ("audio_insights_prompt", "p" * 20_000),
        ("speech_prompt", "p" * 1001),
        ("speech_lang", "x" * 100),
        ("speech_model", "m" * 1000),
        ("translation_target_lang", "x" * 100),
    ):
        assert jobs.file(recording(), {**SOUND, name: value}).status_code in (400, 422)
    assert jobs.file(recording(), filename="n" * 30_000).status_code < 500


def test_it_is_still_well(target: Target) -> None:
    target.well()
