"""Long texts of JSON are found and decoded in pieces, and the rest is the JSON that a decoder would have read."""

import base64
import json
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http import long_texts
from app.http.faults import NOT_JSON, why_not_json
from app.http.long_texts import base64_pieces, without_long_texts
from topics.errors import BadRequest

SMALL: dict[str, Any] = {"LONG": 8, "REST": 48, "PIECE": 16, "_FIRST": 4}


def small() -> Any:
    return mock.patch.multiple(long_texts, **SMALL)


@given(
    audio=st.binary(min_size=0, max_size=300),
    width=st.integers(1, 70),
    ending=st.sampled_from(["", "\\n", "\\r\\n", "\\u000a", " "]),
    slash=st.sampled_from(["/", "\\/", "\\u002f"]),
    before=st.sampled_from(['"a":1,', '"b":"\\\\",', '"c":"\\"",', '"d":"\\\\\\"x",']),
)
def test_long_text_is_decoded_as_a_decoder_would(
    audio: bytes, width: int, ending: str, slash: str, before: str
) -> None:
    text = base64.b64encode(audio).decode()
    lines = ending.join(text[at : at + width] for at in range(0, len(text), width)).replace("/", slash)
    body = f'{{{before}"data":"{lines}"}}'.encode()
    with small():
        rest, texts = without_long_texts(body)
        read = json.loads(rest)
        assert b"".join(base64_pieces(body, read["data"], texts)) == audio
    assert {name: value for name, value in read.items() if name != "data"} == json.loads(f"{{{before[:-1]}}}")


@given(st.text('A"\\ud83{}:,[] \n', max_size=200).map(str.encode))
def test_rest_is_json_only_if_the_body_is_json_outside_of_long_texts(body: bytes) -> None:
    with small():
        try:
            rest, texts = without_long_texts(body)
            msgspec.json.decode(rest)
        except (*NOT_JSON, BadRequest):
            return
    shortened = body
    for place in reversed(texts):
        shortened = shortened[: place.start] + shortened[place.stop :]
    msgspec.json.decode(shortened)


@pytest.mark.parametrize("body", [b'"",' * 100, b"[" * 100, b'{"a":"","b":1} ' + b" " * 100])
def test_body_with_too_much_besides_its_audio_is_rejected(body: bytes) -> None:
    with small(), pytest.raises((BadRequest, msgspec.DecodeError)):
        without_long_texts(body)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Input data was truncated", "Input data was truncated"),
        ("JSON is malformed: invalid utf-16 surrogate pair (byte 2000)", "JSON is malformed"),
        ("JSON is malformed: invalid utf-16 surrogate pair (byte 15)", r"\ud800 is half of a surrogate pair"),
    ],
)
def test_reason_of_a_fault_is_searched_around_it(said: str, reason: str) -> None:
    """A search of the whole body would hold the interpreter lock for seconds."""
    body = b'{"text":"\\ud800 and more' + b"A" * 4000
    assert why_not_json(body, msgspec.DecodeError(said)).startswith(reason)


def test_decoder_of_json_reads_no_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the interpreter lock as long as it reads."""
    decode = mock.Mock(wraps=msgspec.json.Decoder(str).decode)
    monkeypatch.setattr(long_texts, "_TEXT", mock.Mock(decode=decode))
    body = b'{"data":"' + b"QUJD\\n" * 200_000 + b'"}'
    rest, texts = without_long_texts(body)
    assert len(rest) < 100
    assert b"".join(base64_pieces(body, json.loads(rest)["data"], texts)) == b"ABC" * 200_000
    assert max(len(call.args[0]) for call in decode.call_args_list) <= long_texts.PIECE + 2
