"""Bodies: read within their bound."""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

import pytest

from app.http.bodies import DISCARDED_BYTES, SHARES, BodyQuota, check_encoding, read_body
from app.http.errors import ClientGone, TooLargeToRead, UnsupportedEncoding, status_of
from topics.errors import TooLarge, Unavailable


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
    return asyncio.run(read_body(wire, content_length, limit, BodyQuota(SHARES * 1000)))


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


async def test_incoming_bodies_reserve_and_release_quota() -> None:
    room, arrived = BodyQuota(20), asyncio.Queue[MutableMapping[str, Any]]()
    reading = asyncio.create_task(read_body(arrived.get, b"", 10, room, ["one"]))
    arrived.put_nowait({"type": "http.request", "body": bytes(8), "more_body": True})
    await asyncio.sleep(0)
    assert room.used == 8
    with pytest.raises(Unavailable, match="of this project"):
        await read_body(Wire(bytes(2), bytes(2), bytes(2)), b"", 10, room, ["one"])
    assert await read_body(Wire(bytes(5), bytes(5)), b"", 10, room, ["two"]) == bytes(10)
    room.take(["other"], 10, 10)
    with pytest.raises(Unavailable, match="bodies fill their memory"):
        await read_body(Wire(bytes(3), bytes(1)), b"", 10, room, ["three"])
    # Data that is available at once needs no room.
    assert await read_body(Wire(bytes(10)), b"", 10, room, ["one"]) == bytes(10)
    arrived.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        await reading
    assert room.used == 10


def test_quota_is_released_on_every_outcome() -> None:
    room = BodyQuota(SHARES * 10)
    for wire, limit in ((Wire(b"0123", b"4567"), 10), (Wire(b"0123", b"4567"), 5), (Wire(b"0123", gone=True), 10)):
        with contextlib.suppress(ClientGone, TooLarge):
            asyncio.run(read_body(wire, b"", limit, room))
        assert room.used == 0


def test_session_has_share_of_project_quota() -> None:
    """A project alone gets half of the memory, and a session a fifth: a quarter of what is free to its project."""
    room = BodyQuota(100)
    for session, size in (("session", 20), ("other", 20), ("third", 10)):
        room.take(["project", session], size, 10)
        with pytest.raises(Unavailable):
            room.take(["project", session], 6, 10)
    with pytest.raises(Unavailable):
        room.take(["project", "fourth"], 1, 10)
    # A long body may use all room, regardless of shares.
    with pytest.raises(Unavailable):
        room.take(["other project", "long"], 26, 25)
    room.take(["other project", "long"], 25, 25)
    assert room.used == 75
    for session, size in (("session", 20), ("other", 20), ("third", 10)):
        room.give_back(["project", session], size)
    room.give_back(["other project", "long"], 25)
    assert (room.used, dict(room._by_sender)) == (0, {})


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"gzip, identity"])
def test_compressed_body_is_rejected(encoding: bytes) -> None:
    with pytest.raises(UnsupportedEncoding, match=encoding.decode()) as refused:
        check_encoding(encoding)
    assert status_of(refused.value) == 415


@pytest.mark.parametrize("encoding", [b"", b"identity", b" Identity"])
def test_identity_encoding_is_accepted(encoding: bytes) -> None:
    check_encoding(encoding)
