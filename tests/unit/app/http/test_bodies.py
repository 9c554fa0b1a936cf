"""Bodies: read within their bound, and decoded strictly."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.bodies import DISCARDED, ClientGone, Flood, audio_bytes, chunk_body, read_body
from topics.errors import BadRequest, TooLarge


class Wire:
    """ASGI messages, one a call; counts what was asked for."""

    def __init__(self, *parts: bytes, gone: bool = False) -> None:
        self._messages: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if gone:
            self._messages.append({"type": "http.disconnect"})
        else:
            self._messages[-1]["more_body"] = False
        self.taken = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        self.taken += 1
        return self._messages[self.taken - 1]


def read(wire: Wire, content_length: bytes = b"", limit: int = 10) -> bytes:
    return asyncio.run(read_body(wire, content_length, limit))


@pytest.mark.parametrize("parts", [(b"",), (b"0123456789",), (b"01234", b"", b"56789")])
def test_a_body_is_put_together(parts: tuple[bytes, ...]) -> None:
    assert read(Wire(*parts)) == b"".join(parts)


def test_an_announced_length_is_refused_before_anything_is_read() -> None:
    wire = Wire(b"01234567890")
    with pytest.raises(TooLarge, match="longer than 10 bytes") as refusal:
        read(wire, b"11")
    assert (wire.taken, isinstance(refusal.value, Flood)) == (0, False)
    with pytest.raises(Flood):
        read(wire, b"%d" % (DISCARDED + 1))
    assert wire.taken == 0


def test_a_longer_body_than_announced_is_read_no_further_than_its_bound() -> None:
    wire = Wire(b"012345", b"678901", b"more")
    with pytest.raises(Flood):
        read(wire, b"3")
    assert wire.taken == 2


def test_a_client_that_hangs_up_is_not_answered() -> None:
    with pytest.raises(ClientGone):
        read(Wire(b"0123", gone=True))


@given(
    data=st.binary(min_size=1, max_size=300), width=st.integers(1, 80), ending=st.sampled_from(["\n", "\r\n", " \t"])
)
def test_base64_is_decoded_whole_or_in_lines(data: bytes, width: int, ending: str) -> None:
    text = base64.b64encode(data).decode()
    lines = ending.join(text[at : at + width] for at in range(0, len(text), width)) + ending
    assert audio_bytes(text, 300) == audio_bytes(lines, 300) == data


@given(text=st.text(max_size=20))
def test_other_text_is_no_audio(text: str) -> None:
    stripped = "".join(text.split())
    try:
        expected = base64.b64decode(stripped.encode("ascii"), validate=True)
    except ValueError:
        expected = b""
    if expected:
        assert audio_bytes(text, 300) == expected
    else:
        with pytest.raises(BadRequest, match=r"^data: "):
            audio_bytes(text, 300)


@pytest.mark.parametrize("limit", [1024, 1024 * 1024])
def test_the_bound_of_a_body_lets_a_full_chunk_in_lines_through(limit: int) -> None:
    lines = base64.encodebytes(bytes(limit)).replace(b"\n", b"\\r\\n")
    assert len(b'{"data":"%s"}' % lines) <= chunk_body(limit)
    assert len(audio_bytes(base64.b64encode(bytes(limit)).decode(), limit)) == limit
    with pytest.raises(TooLarge, match=f"{limit + 1} bytes"):
        audio_bytes(base64.b64encode(bytes(limit + 1)).decode(), limit)
