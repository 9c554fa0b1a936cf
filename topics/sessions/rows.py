"""Decoders of the rows of sessions, which have the keys of `topics.keys`."""

from typing import Final

import msgspec

from topics.rows import VERSION, WITH_RECENT, Decoder
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead
from topics.sessions.sounds import SoundRules

#: Windows per block row: few enough to rewrite for every window, many enough that a page has few rows.
BLOCK_WINDOWS: Final = 16


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes
    #: As in `Scored`.
    looks: bytes = b""


head: Final = Decoder[SessionHead](SessionHead, versions=(VERSION, WITH_RECENT)).optional
opened: Final = Decoder[Opened](Opened).optional
block: Final = Decoder[Block](Block).optional
_rules: Final = Decoder[tuple[SoundRules, ...]](tuple[SoundRules, ...]).optional


def with_rules(request: Opened, row: bytes | None) -> Opened:
    """Return an opening with the rules of the session's RULES row, if there is one.

    A restored changelog may end with a request row that lacks later rules, while the table's head and windows are
    newer. The RULES row is never older than the table.
    """
    rules = _rules(row)
    return request if rules is None else msgspec.structs.replace(request, tuned=rules)
