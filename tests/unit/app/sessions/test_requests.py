"""Requests: audio in base64, whole or in lines, within its limit; page tokens for their own session."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.bodies import chunk_body, decode
from app.sessions.requests import CHUNK, audio_bytes, chunk_audio
from app.sessions.tokens import PageTokens
from topics.errors import BadRequest, RequestError, TooLarge


@given(
    data=st.binary(min_size=1, max_size=300), width=st.integers(1, 80), ending=st.sampled_from(["\n", "\r\n", " \t"])
)
def test_base64_is_decoded_whole_or_in_lines(data: bytes, width: int, ending: str) -> None:
    text = base64.b64encode(data).decode()
    lines = ending.join(text[at : at + width] for at in range(0, len(text), width)) + ending
    assert audio_bytes(text, 300) == audio_bytes(lines, 300) == data


@given(text=st.text("AZaz09+/=-_ \n\té\0", max_size=20))
def test_invalid_base64_is_rejected(text: str) -> None:
    stripped = "".join(text.split())
    try:
        expected = base64.b64decode(stripped.encode("ascii"), validate=True)
    except ValueError:
        expected = b""
    # Python's decoder ignores surplus padding.
    if expected and len(base64.b64encode(expected)) == len(stripped):
        assert audio_bytes(text, 300) == expected
    else:
        with pytest.raises(BadRequest, match=r"^data: "):
            audio_bytes(text, 300)


@pytest.mark.parametrize("limit", [1024, 1024 * 1024])
def test_body_limit_admits_full_chunk_in_lines(limit: int) -> None:
    lines = base64.encodebytes(bytes(limit)).replace(b"\n", b"\\r\\n")
    assert len(b'{"data":"%s"}' % lines) <= chunk_body(limit)
    assert len(audio_bytes(base64.b64encode(bytes(limit)).decode(), limit)) == limit
    with pytest.raises(TooLarge, match=f"{limit + 1} bytes"):
        audio_bytes(base64.b64encode(bytes(limit + 1)).decode(), limit)


BODIES = [
    b'{"data":"QUJD"}',
    b' {\n"data" :\t"QUJD" } \r\n',
    b'{"data":"QU\\nJD"}',
    b'{"data":"QU\\u004aD"}',
    b'{"data":"QUJD","more":1}',
    b'{"more":"x","data":"QUJD"}',
    b'{"data":"QUJD","data":"QUJE"}',
    b'{"data":"QUJD"',
    b'{"data":"QUJD"}}',
    b'{"data":"QUJD"}\x0b',
    b'\x0b{"data":"QUJD"}',
    b'{"data":"}',
    b'{"data":""}',
    b'{"data":"QUJ"}',
    b'{"data":"Q"}"}',
    b'{"data":"QUJD","":"}',
    b'{"data":1,"x":"QUJD"}',
    b'{"data":"\xff"}',
    b"",
    b'"}',
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_chunk_audio_agrees_with_json_decoder(body: bytes) -> None:
    def answer(read: Callable[[], bytes]) -> bytes | str:
        try:
            return read()
        except RequestError as error:
            return f"{type(error).__name__} {error}"

    assert answer(lambda: chunk_audio(body, 100)) == answer(lambda: audio_bytes(decode(CHUNK, body).data, 100))


def test_chunk_limit_applies_to_bodies() -> None:
    with pytest.raises(TooLarge, match="101 bytes"):
        chunk_audio(b'{"data":"%s"}' % base64.b64encode(bytes(101)), 100)


SESSION, OTHER = "a" * 24, "b" * 24
TOKENS = PageTokens(b"s" * 32)


@given(offset=st.integers(0, 2**63), count=st.integers(1, 1024))
def test_token_round_trip(offset: int, count: int) -> None:
    token = TOKENS.issue(SESSION, offset, count)
    assert TOKENS.read(SESSION, token) == (offset, count)
    assert token.replace("-", "").replace("_", "").isalnum(), "a token needs no quoting in a URL"


@pytest.mark.parametrize("reader", [(TOKENS, OTHER), (PageTokens(b"t" * 32), SESSION)])
def test_token_is_bound_to_session_and_deployment(reader: tuple[PageTokens, str]) -> None:
    tokens, session = reader
    with pytest.raises(BadRequest, match="next_token"):
        tokens.read(session, TOKENS.issue(SESSION, 5, 10))


@pytest.mark.parametrize("secret", [b"", b"x" * 15, b"x" * 65])
def test_secret_of_wrong_length_is_rejected(secret: bytes) -> None:
    with pytest.raises(ValueError, match="16 to 64"):
        PageTokens(secret)
