"""Bodies: read within their bound."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from app.http.bodies import DISCARDED_BYTES, read_body
from app.http.errors import ClientGone, TooLargeToRead
from topics.errors import TooLarge


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
    assert (wire.taken, isinstance(refusal.value, TooLargeToRead)) == (0, False)
    with pytest.raises(TooLargeToRead):
        read(wire, b"%d" % (DISCARDED_BYTES + 1))
    assert wire.taken == 0


def test_a_longer_body_than_announced_is_read_no_further_than_its_bound() -> None:
    wire = Wire(b"012345", b"678901", b"more")
    with pytest.raises(TooLargeToRead):
        read(wire, b"3")
    assert wire.taken == 2


def test_a_client_that_hangs_up_is_not_answered() -> None:
    with pytest.raises(ClientGone):
        read(Wire(b"0123", gone=True))
