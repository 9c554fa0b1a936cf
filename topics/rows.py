"""The rows of the table: what is stored under the keys of `topics.keys`, and how."""

from __future__ import annotations

from typing import Final

import msgspec

from topics.lifecycle import Head, Receipt
from topics.records import Opened

#: Windows in one block row: small enough to write again for every window, large enough that a page is few rows.
BLOCK_WINDOWS: Final = 16


class ChunkRow(msgspec.Struct, frozen=True, array_like=True):
    """Where the audio of a chunk is: on the command topic, in the session's partition."""

    offset: int
    length: int
    #: XXH3-128 of the audio bytes.
    digest: bytes


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes


encode: Final = msgspec.msgpack.Encoder().encode

_head: Final = msgspec.msgpack.Decoder(Head)
_opened: Final = msgspec.msgpack.Decoder(Opened)
_chunk: Final = msgspec.msgpack.Decoder(ChunkRow)
_block: Final = msgspec.msgpack.Decoder(Block)
_receipt: Final = msgspec.msgpack.Decoder(Receipt)


def head(value: bytes | None) -> Head | None:
    """Read a head row, None where there is none."""
    return None if value is None else _head.decode(value)


def opened(value: bytes | None) -> Opened | None:
    """Read an opening row, None where there is none."""
    return None if value is None else _opened.decode(value)


def chunk(value: bytes | None) -> ChunkRow | None:
    """Read a chunk row, None where there is none."""
    return None if value is None else _chunk.decode(value)


def block(value: bytes | None) -> Block | None:
    """Read a block row, None where there is none."""
    return None if value is None else _block.decode(value)


def receipt(value: bytes | None) -> Receipt | None:
    """Read a receipt row, None where there is none."""
    return None if value is None else _receipt.decode(value)
