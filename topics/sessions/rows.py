"""The rows of sessions under the keys of `topics.keys`, and how they are read."""

from __future__ import annotations

from typing import Final

import msgspec

from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead

#: Windows in one block row: small enough to write again for every window, large enough that a page is few rows.
BLOCK_WINDOWS: Final = 16


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes


_head: Final = msgspec.msgpack.Decoder(SessionHead)
_opened: Final = msgspec.msgpack.Decoder(Opened)
_block: Final = msgspec.msgpack.Decoder(Block)


def head(value: bytes | None) -> SessionHead | None:
    """Read a head row, None where there is none."""
    return None if value is None else _head.decode(value)


def opened(value: bytes | None) -> Opened | None:
    """Read an opening row, None where there is none."""
    return None if value is None else _opened.decode(value)


def block(value: bytes | None) -> Block | None:
    """Read a block row, None where there is none."""
    return None if value is None else _block.decode(value)
