"""The rows of sessions under the keys of `topics.keys`, and how they are read."""

from typing import Final

import msgspec

from topics.rows import RowDecoder
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead

#: Windows in one block row: small enough to write again for every window, large enough that a page is few rows.
BLOCK_WINDOWS: Final = 16


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes


head: Final = RowDecoder[SessionHead](SessionHead).decode
opened: Final = RowDecoder[Opened](Opened).decode
block: Final = RowDecoder[Block](Block).decode
