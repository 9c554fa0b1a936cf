"""Shared by tests of the speaker interface: an edge in process, forms, and the envelope of every answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from tests.unit.app.conftest import OPTIONS, ORG_KEY, House, client_of

FORM = "multipart/form-data; boundary=boundary_1700000000.5_123456"
EDGE = b"--boundary_1700000000.5_123456"
END = EDGE + b"--\r\n"
VOICE = b"RIFF\r\n" + bytes(range(14))


def part(disposition: str, content: bytes, kind: str = "") -> bytes:
    headers = f"Content-Disposition: form-data; {disposition}\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
    return EDGE + b"\r\n" + headers.encode() + b"\r\n" + content + b"\r\n"


def named(speaker: str) -> bytes:
    """Return the name part as the vendor's client writes it, with a surplus semicolon."""
    return part('name="speaker";', speaker.encode())


def recorded(content: bytes = VOICE) -> bytes:
    return part('name="file"; filename="a b.wav"', content)


def form(speaker: str, content: bytes = VOICE) -> bytes:
    return named(speaker) + recorded(content) + END


def opened(answer: Any) -> Any:
    """Check the envelope of a success and return its content."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert list(content) == ["data", "error", "debug"]
    assert (content["error"], content["debug"]) == ("", "")
    return content["data"]


def refused(answer: Any, message: str, status: int = 200) -> None:
    """Check that an answer is this error in its envelope."""
    assert (answer.status_code, answer.json()) == (status, {"data": None, "error": message, "debug": ""})
    assert answer.headers["content-type"] == "application/json"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(msgspec.structs.replace(OPTIONS, spool=tmp_path, upload_idle_seconds=0.05))


@pytest.fixture
def http(house: House) -> Iterator[TestClient]:
    """A client of the fresh edge that sends its organization's key."""
    with client_of(house, x_org_key=ORG_KEY, content_type=FORM) as client:
        yield client
