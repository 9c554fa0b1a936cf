"""Identifiers and sortable table keys.

All rows live in one table, so that one write batch and one changelog carry what belongs together. A key is

    0x01 | session id (24 ASCII bytes) | kind (1 byte) | number (8 bytes, big-endian)    a row of a session
    0x02 | due time (8 bytes, milliseconds, big-endian) | session id                     the expiry index

so that a session is one range, its chunks and blocks are ranges in order, and due sessions come first in the index.
"""

from __future__ import annotations

import secrets
import string
import zlib
from typing import Final

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH: Final = 24

SESSION: Final = b"\x01"
DUE: Final = b"\x02"

OPENED: Final = b"a"
HEAD: Final = b"b"
CHUNK: Final = b"c"
BLOCK: Final = b"d"
RECEIPT: Final = b"e"


def new_id() -> str:
    """Return a fresh session id: 24 base62 characters, 142 random bits (most calls on a session need no key)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))


def is_id(text: str) -> bool:
    """Tell whether `text` has the form of a session id; anything else is unknown without a look-up."""
    return len(text) == ID_LENGTH and text.isascii() and text.isalnum()


def session_key(session: str, kind: bytes, number: int | None = None) -> bytes:
    """Return the key of a session's row; `number` is the chunk sequence or block number where the kind has one."""
    prefix = SESSION + session.encode("ascii") + kind
    return prefix if number is None else prefix + number.to_bytes(8, "big")


def session_prefix(session: str) -> bytes:
    """Return what all rows of a session begin with."""
    return SESSION + session.encode("ascii")


def number_of(key: bytes) -> int:
    """Return the number at the end of a chunk, block or receipt key."""
    return int.from_bytes(key[-8:], "big")


def due_key(due_ms: int, session: str) -> bytes:
    """Return the expiry index key of a session that may expire at `due_ms` (log time, milliseconds)."""
    return DUE + due_ms.to_bytes(8, "big") + session.encode("ascii")


def parse_due(key: bytes) -> tuple[int, str]:
    """Return (due time in milliseconds, session id) of an expiry index key."""
    return int.from_bytes(key[1:9], "big"), key[9:].decode("ascii")


def partition_of(session: str, partitions: int) -> int:
    """Return the partition of a session, the same on every topic (CRC-32: every record names its partition)."""
    return zlib.crc32(session.encode("ascii")) % partitions
