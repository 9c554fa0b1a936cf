"""Validation errors of a body, field by field: all of them, and none for a valid body."""

import json
import re
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.bodies import decode
from app.http.faults import faults
from topics.errors import BadRequest


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    flag: bool = False
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="^[a-z]*$")] | None = None


class Outer(msgspec.Struct):
    inner: Inner
    count: Annotated[int, msgspec.Meta(gt=0, lt=9)]
    rate: Annotated[float, msgspec.Meta(multiple_of=1)] = 1
    names: dict[str, int] = {}


GOOD: dict[str, Any] = {"inner": {}, "count": 1}

FAULTS = [
    ({}, [("missing", "inner"), ("missing", "count")]),
    ({"inner": [], "count": 0, "unknown": 1}, [("model_type", "inner"), ("greater_than", "count")]),
    (GOOD | {"inner": {"a": 1, "flag": 0}}, [("bool_type", "inner.flag"), ("extra_forbidden", "inner.a")]),
    (GOOD | {"count": 9}, [("less_than", "count")]),
    (GOOD | {"inner": {"text": ""}}, [("string_too_short", "inner.text")]),
    (GOOD | {"inner": {"text": "abcd"}}, [("string_too_long", "inner.text")]),
    (GOOD | {"inner": {"text": "A"}}, [("string_pattern_mismatch", "inner.text")]),
    (GOOD | {"inner": {"text": 5}}, [("string_type", "inner.text")]),
    (GOOD | {"count": 1.5}, [("int_type", "count")]),
    (GOOD | {"rate": 1.5}, [("int_type", "rate")]),
    (GOOD | {"rate": None}, [("int_type", "rate")]),
    (GOOD | {"names": {"x": "y"}}, [("value_error", "names")]),
    ([], [("model_type", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), FAULTS)
def test_faults_have_location_and_kind(body: object, expected: list[tuple[str, str]]) -> None:
    text = json.dumps(body).encode()
    assert [(fault.kind, ".".join(fault.place)) for fault in faults(Outer, text)] == expected
    with pytest.raises(BadRequest, match=f"^{expected[0][1] or 'body'}: "):
        decode(msgspec.json.Decoder(Outer), text)


@pytest.mark.parametrize("text", [b"", b"{", b'{"count":', b"nul", b'{"count":1,"inner":{"text":"\xff"}}'])
def test_invalid_json_is_single_fault(text: bytes) -> None:
    (fault,) = faults(Outer, text)
    assert (fault.kind, fault.place) == ("json_invalid", ())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aB", max_size=5),
    lambda values: (
        st.lists(values, max_size=2) | st.dictionaries(st.sampled_from(["flag", "text", "x"]), values, max_size=3)
    ),
)


@given(st.dictionaries(st.sampled_from(["inner", "count", "rate", "names", "y"]), VALUES))
def test_faults_match_decoding_failures(body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    try:
        msgspec.json.decode(text, type=Outer)
    except msgspec.ValidationError:
        assert list(faults(Outer, text))
    else:
        assert list(faults(Outer, text)) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": 1}'.encode("utf-16"), "byte order mark"),
        (b'{"inner": {"text": "\\ud800"}}', r"\\ud800 is half of a surrogate pair"),
        (b'{"inner": {"text": "\\uD83D and more words"}}', r"\\uD83D is half of a surrogate pair"),
        (b'{"inner": {"text": "\\\\ud800', "truncated"),
        (b'{"inner": ', "truncated"),
    ],
)
def test_json_errors_have_plain_messages(text: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        decode(msgspec.json.Decoder(Outer), text)
    [fault] = faults(Outer, text)
    assert re.search(why, fault.message)
