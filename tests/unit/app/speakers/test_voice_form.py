"""Forms with voices: every fault has a message; oversized bodies are neither kept nor left unanswered."""

import asyncio
import contextlib
import errno
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import msgspec
import pytest
from starlette.testclient import TestClient

from app.http.bodies import SMALL_BODY
from app.http.uploads import UploadSpool
from app.speakers import voice_form
from tests.unit.app.conftest import OPTIONS, ORG_KEY, Exchange, House, serving
from tests.unit.app.speakers.conftest import END, FORM, VOICE, form, named, opened, part, recorded, refused

INVALID = "speaker is invalid. only alphabet, number and underscore are allowed"
TOO_LARGE = "one of uploaded files is bigger than 100 MB"
LIMIT = 64 * 1024


@pytest.mark.parametrize("parts", [(named("Anna"), recorded()), (recorded(), named("Anna"))])
def test_parts_are_accepted_in_any_order_among_others(
    house: House, http: TestClient, parts: tuple[bytes, bytes]
) -> None:
    other = part('name="speakers"', b"Bob") + part('name="voice"; filename="x"', b"x" * 9) + part("filename=x", b"")
    opened(http.post("/api/v2/voice", content=b"".join((parts[0], other, parts[1], END, b"epilogue"))))
    assert house.speakers.organizations["organization"]["Anna"].voices == [VOICE]


def test_recognition_needs_no_name(http: TestClient) -> None:
    opened(http.post("/api/v2/recognition", content=recorded() + END))
    opened(http.post("/api/v2/recognition", content=named("a b") + recorded() + END))
    refused(http.post("/api/v2/recognition", content=END), "file is required")
    refused(http.post("/api/v2/recognition", content=recorded(b"") + END), "an empty file")


LONG_NAME = "speaker is invalid. at most 100 characters are allowed"
#: Forms, and their faults beyond the contract's; the first fault counts.
FAULTS = {
    "no name": (recorded() + END, INVALID),
    "neither": (END, INVALID),
    "no file": (named("Anna") + END, "file is required"),
    "empty file": (form("Anna", b""), "an empty file"),
    **{f"name {name!r}": (form(name), INVALID) for name in ("", "Anna Kim", "Anna-Kim", "a/b", "Anna\n", "Änna", "٣")},
    **{f"{length} characters": (form("a" * length), LONG_NAME) for length in (101, 100_000)},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_invalid_registrations_are_rejected(house: House, http: TestClient, fault: str) -> None:
    content, message = FAULTS[fault]
    refused(http.post("/api/v2/voice", content=content), message)
    assert house.speakers.calls == 0


def test_longest_name_is_accepted(http: TestClient) -> None:
    assert opened(http.post("/api/v2/voice", content=form("a" * 100)))["speaker"] == "a" * 100


BROKEN = {
    "file twice": (recorded() + form("Anna"), "file appears twice"),
    "nothing": (b"", "ends before its last boundary"),
    "garbage": (b"no form at all", "not a multipart form"),
}


@pytest.mark.parametrize("path", ["/voice", "/recognition"])
@pytest.mark.parametrize("fault", BROKEN)
def test_malformed_form_returns_400(house: House, http: TestClient, path: str, fault: str) -> None:
    content, message = BROKEN[fault]
    answer = http.post(f"/api/v2{path}", content=content)
    assert message in answer.json()["error"]
    refused(answer, answer.json()["error"], 400)
    assert house.speakers.calls == 0


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "audio/wav", ""])
def test_other_content_types_report_missing_file(http: TestClient, kind: str) -> None:
    answer = http.post("/api/v2/voice", content=b"speaker=Anna", headers={"Content-Type": kind})
    refused(answer, "file is required")


def test_full_disk_returns_503(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadSpool, "write", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    answer = http.post("/api/v2/voice", content=form("Anna"))
    refused(answer, "the audio cannot be kept now", 503)
    assert answer.headers["retry-after"] == "10"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits that tests reach quickly."""
    monkeypatch.setattr(voice_form, "VOICE_BYTES", LIMIT)
    monkeypatch.setattr(voice_form, "READ", 8 * LIMIT)


def test_file_size_limit(house: House, http: TestClient, limited: None) -> None:
    opened(http.post("/api/v2/voice", content=form("Anna", bytes(LIMIT))))
    refused(http.post("/api/v2/voice", content=form("Anna", bytes(LIMIT + 1))), TOO_LARGE)
    refused(http.post("/api/v2/recognition", content=recorded(bytes(LIMIT + 1)) + END), TOO_LARGE)
    assert house.speakers.calls == 1


def test_file_size_limit_matches_contract() -> None:
    assert voice_form.VOICE_BYTES == 100 * 1024 * 1024


def exchange(house: House, *pieces: bytes, operation: str = "voice", **headers: str) -> Exchange:
    """Begin a request whose body arrives in these pieces; it ends with an empty piece, or not at all."""
    given = {"x_org_key": ORG_KEY, "content_type": FORM, **headers}
    return Exchange(house, f"/api/v2/{operation}", "POST", pieces, **given)


async def refused_as_too_large(exchange: Exchange) -> bool:
    """Wait for the answer; return whether the connection is closed."""
    await exchange.end()
    assert (exchange.status, exchange.json["error"]) == (200, TOO_LARGE)
    return exchange.headers.get("connection") == "close"


async def test_oversized_content_length_is_rejected_unread(house: House) -> None:
    for length, closes in ((voice_form.VOICE_BYTES + SMALL_BODY + 1, False), (voice_form.THROWN_AWAY + 1, True)):
        assert await refused_as_too_large(exchange(house, content_length=str(length))) is closes


async def test_endless_body_is_cut_off(house: House, limited: None) -> None:
    assert await refused_as_too_large(exchange(house, form("Anna")[: -len(END)], *[bytes(LIMIT)] * 9))


async def test_disconnect_cancels_recognition(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = []
    began = asyncio.Event()

    async def recognize(organization: str, file: int) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            outcome.append("cancelled")

    monkeypatch.setattr(house.speakers, "recognize", recognize)
    asked = exchange(house, recorded() + END, b"", operation="recognition")
    await began.wait()
    await asked.leave()
    assert (asked.status, outcome) == (0, ["cancelled"])


async def test_oversized_file_is_not_spooled(house: House, limited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    closing = UploadSpool._close

    def close(spool: UploadSpool) -> None:
        sizes.append(spool.size)
        closing(spool)

    monkeypatch.setattr(UploadSpool, "_close", close)
    monkeypatch.setattr("app.http.uploads.BLOCK_BYTES", 4096)
    content = form("Anna", bytes(6 * LIMIT))
    pieces = [content[start : start + 5000] for start in range(0, len(content), 5000)]
    assert not await refused_as_too_large(exchange(house, *pieces, b""))
    assert len(sizes) == 1
    assert LIMIT - 5000 < sizes[0] <= LIMIT


@pytest.fixture
def url(limited: None, tmp_path: Path) -> Iterator[str]:
    with serving(House(msgspec.structs.replace(OPTIONS, spool=tmp_path))) as running:
        yield running.url


#: More than any buffer holds, so that a writing client blocks unless the server reads.
LARGE = form("Anna", bytes(16 * 1024 * 1024))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("closing", [False, True])
def test_client_that_writes_before_reading_gets_answer(
    url: str, chunked: bool, closing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_form, "READ", len(LARGE))
    headers = {"X-Org-Key": ORG_KEY, "Content-Type": FORM, **({"Connection": "close"} if closing else {})}
    body = iter([LARGE[: len(LARGE) // 2], LARGE[len(LARGE) // 2 :]]) if chunked else LARGE
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)) as connection:
        connection.request("POST", "/api/v2/voice", body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]) == (200, TOO_LARGE)
        if closing:
            return
        port = connection.sock.getsockname()
        connection.request("GET", "/api/v2/speakers", headers=headers)
        assert json.loads(connection.getresponse().read())["data"] == []
        assert connection.sock.getsockname() == port, "it is the same connection"
