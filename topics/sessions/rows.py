"""The rows of sessions under the keys of `topics.keys`, and how they are read."""

from typing import Final

import msgspec

from topics.rows import RowDecoder
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead
from topics.sessions.sounds import SoundRules

#: Windows in one block row: small enough to write again for every window, large enough that a page is few rows.
BLOCK_WINDOWS: Final = 16


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes
    #: As of `Scored`.
    looks: bytes = b""


head: Final = RowDecoder[SessionHead](SessionHead).decode
opened: Final = RowDecoder[Opened](Opened).decode
block: Final = RowDecoder[Block](Block).decode
_rules: Final = RowDecoder[tuple[SoundRules, ...]](tuple[SoundRules, ...]).decode


def with_rules(request: Opened, row: bytes | None) -> Opened:
    """Return what opened a session with the rules of its RULES row, if there is one.

    A restored changelog may end with the request row as it was before the rules came, while the table's head and
    windows are newer. The RULES row is never older than the table.
    """
    rules = _rules(row)
    return request if rules is None else msgspec.structs.replace(request, tuned=rules)
