"""Decoders of the rows of sessions, which have the keys of `topics.keys`."""

from typing import Final

import msgspec

from topics.rows import Decoder
from topics.sessions.capture import Anchor, SourceNote
from topics.sessions.records import Cursor, Opened
from topics.sessions.rules import SessionHead, SessionState, without_dropped
from topics.sessions.sounds import SoundRules

#: Windows per block: few enough to rewrite for every window, many enough that a page has few rows.
BLOCK_WINDOWS: Final = 16


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Up to BLOCK_WINDOWS consecutive windows scored by one model."""

    model: str
    scores: bytes
    #: As in `NewWindows`.
    embeddings: bytes = b""


class Name(msgspec.Struct, frozen=True, array_like=True):
    """A client's words about a session, as in `Opened`."""

    file_name: str | None
    metadata: dict[str, str]


class Newest(msgspec.Struct, frozen=True, array_like=True):
    """How far a session's analysis came, with the windows of the block that is not full.

    They are one row, so that windows, cursor and end are shown together or not at all.
    """

    windows: int
    cursor: Cursor
    finished: bool
    #: Log time (ms).
    at: int
    #: As in `SessionHead`.
    silent: tuple[tuple[int, int], ...]
    block: Block
    #: As in `SessionHead`.
    heard: int = 0
    #: What changed in the rules of alarms since their row was written, encoded (`streams.alarms.alarm_rows`).
    watched: bytes = b""


head: Final = Decoder[SessionHead](SessionHead).optional
opened: Final = Decoder[Opened](Opened).optional
block: Final = Decoder[Block](Block).optional
anchor: Final = Decoder[Anchor](Anchor).optional
note: Final = Decoder[SourceNote](SourceNote).optional
newest: Final = Decoder[Newest](Newest).optional
_rules: Final = Decoder[tuple[SoundRules, ...]](tuple[SoundRules, ...]).optional


name: Final = Decoder[Name](Name).optional


def stored(head: SessionHead) -> SessionHead:
    """Return what the row of a head holds. A deleted session has no other row, so that one is whole."""
    if head.state is SessionState.DELETED:
        return head
    return msgspec.structs.replace(head, windows=0, cursor=Cursor(), finished=False, analysed_at=0, silent=(), heard=0)


def whole(head: SessionHead | None, newest: Newest | None) -> SessionHead | None:
    """Return the head of a session from its two rows."""
    if head is None or head.state is SessionState.DELETED:
        return head
    if newest is None:
        return msgspec.structs.replace(head, finished=True) if head.error is not None else head
    return without_dropped(
        msgspec.structs.replace(
            head,
            windows=newest.windows,
            cursor=newest.cursor,
            finished=newest.finished or head.error is not None,
            analysed_at=newest.at,
            silent=tuple(windows for windows in newest.silent if windows[1] > head.metered),
            heard=newest.heard,
        )
    )


def with_changes(request: Opened, rules_row: bytes | None, name_row: bytes | None) -> Opened:
    """Return an opening with what the session's RULES and NAME rows have, if there are any.

    A restored changelog may end with a request row that lacks later changes, while the table's head and windows are
    newer. These rows are never older than the table.
    """
    rules, words = _rules(rules_row), name(name_row)
    changes = {} if rules is None else {"tuned": rules}
    return msgspec.structs.replace(request, **changes, **({} if words is None else msgspec.structs.asdict(words)))
