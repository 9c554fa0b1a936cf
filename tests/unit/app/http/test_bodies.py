"""Bodies: read within their bound, and checked field by field."""

import asyncio
import contextlib
import json
import re
from collections.abc import MutableMapping
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.bodies import DISCARDED_BYTES, SHARES, BodyQuota, check_encoding, decode, read_body
from app.http.errors import ClientGone, TooLargeToRead, UnsupportedEncoding
from app.http.faults import faults
from topics.errors import BadRequest, TooLarge, Unavailable
from topics.turns import Holder


class Wire:
    """ASGI messages, one per call; counts calls."""

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
    return asyncio.run(read_body(wire, content_length, limit, BodyQuota(1000 * SHARES[-1])))


@pytest.mark.parametrize("parts", [(b"",), (b"0123456789",), (b"01234", b"", b"56789")])
def test_body_parts_are_joined(parts: tuple[bytes, ...]) -> None:
    assert read(Wire(*parts)) == b"".join(parts)


def test_oversized_content_length_is_rejected_unread() -> None:
    wire = Wire(b"01234567890")
    with pytest.raises(TooLarge, match="longer than 10 bytes") as refusal:
        read(wire, b"11")
    assert (wire.taken, isinstance(refusal.value, TooLargeToRead)) == (0, False)
    with pytest.raises(TooLargeToRead):
        read(wire, b"%d" % (DISCARDED_BYTES + 1))
    assert wire.taken == 0


def test_body_longer_than_declared_is_read_up_to_limit() -> None:
    wire = Wire(b"012345", b"678901", b"more")
    with pytest.raises(TooLargeToRead):
        read(wire, b"3")
    assert wire.taken == 2


def test_disconnect_raises_client_gone() -> None:
    with pytest.raises(ClientGone):
        read(Wire(b"0123", gone=True))


ONE = Holder("o", "one")


async def test_incoming_bodies_reserve_and_release_quota() -> None:
    room, arrived = BodyQuota(40), asyncio.Queue[MutableMapping[str, Any]]()
    reading = asyncio.create_task(read_body(arrived.get, b"", 10, room, ONE))
    arrived.put_nowait({"type": "http.request", "body": bytes(8), "more_body": True})
    await asyncio.sleep(0)
    assert room.used == 8
    with pytest.raises(Unavailable, match="of this project"):
        await read_body(Wire(bytes(2), bytes(2), bytes(2)), b"", 10, room, ONE)
    assert await read_body(Wire(bytes(5), bytes(5)), b"", 10, room, Holder("o", "two")) == bytes(10)
    for number in range(3):
        room.take(Holder(f"other {number}", "p"), 10, 10)
    with pytest.raises(Unavailable, match="bodies fill their memory"):
        await read_body(Wire(bytes(3), bytes(1)), b"", 10, room, Holder("o", "three"))
    # Data that is available at once needs no room.
    assert await read_body(Wire(bytes(10)), b"", 10, room, ONE) == bytes(10)
    arrived.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        await reading
    assert room.used == 30


def test_quota_is_released_on_every_outcome() -> None:
    room = BodyQuota(40)
    for wire, limit in ((Wire(b"0123", b"4567"), 10), (Wire(b"0123", b"4567"), 5), (Wire(b"0123", gone=True), 10)):
        with contextlib.suppress(ClientGone, TooLarge):
            asyncio.run(read_body(wire, b"", limit, room))
        assert room.used == 0


def test_organization_has_half_of_the_quota_with_all_its_projects() -> None:
    room = BodyQuota(40)
    for project in ("a", "b"):
        room.take(Holder("o", project), 10, 1)
    with pytest.raises(Unavailable, match="of this organization"):
        room.take(Holder("o", "c"), 1, 1)
    room.take(Holder("other", "c"), 10, 1)


def test_session_has_share_of_project_quota() -> None:
    room = BodyQuota(160)
    room.take(Holder("o", "project", "session"), 10, 10)
    with pytest.raises(Unavailable):
        room.take(Holder("o", "project", "session"), 1, 10)
    room.take(Holder("o", "project", "other"), 10, 10)
    # A long body may use all room, regardless of shares.
    with pytest.raises(Unavailable):
        room.take(Holder("o2", "other", "long"), 26, 25)
    room.take(Holder("o2", "other", "long"), 25, 25)
    assert room.used == 45
    for session, size in (("session", 10), ("other", 10)):
        room.give_back(Holder("o", "project", session), size)
    room.give_back(Holder("o2", "other", "long"), 25)
    assert (room.used, dict(room._by_holder)) == (0, {})


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"gzip, identity"])
def test_compressed_body_is_rejected(encoding: bytes) -> None:
    with pytest.raises(UnsupportedEncoding, match=encoding.decode()) as refused:
        check_encoding(encoding)
    assert refused.value.status == 415


@pytest.mark.parametrize("encoding", [b"", b"identity", b" Identity"])
def test_identity_encoding_is_accepted(encoding: bytes) -> None:
    check_encoding(encoding)


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
