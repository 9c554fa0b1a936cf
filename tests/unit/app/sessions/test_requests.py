"""Audio in requests: base64, whole or in lines, within its bound."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.bodies import chunk_body
from app.sessions.requests import audio_bytes
from topics.errors import BadRequest, TooLarge


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
