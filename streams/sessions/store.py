"""Reads the rows of one partition's sessions with their types."""

from collections.abc import Collection

from streams.folding.draft import ERASED_ROWS
from streams.folding.head_store import HeadStore, PartitionTable
from topics import keys
from topics.sessions import rows
from topics.sessions.records import Opened
from topics.sessions.rows import Block
from topics.sessions.rules import LISTED_STATES, SessionHead, SessionState


class SessionStore(HeadStore[SessionHead]):
    """The sessions of one partition. Loop only."""

    room = keys.SESSION
    index = keys.SESSION_DUE
    unsettled = keys.SESSION_OPEN
    listing = keys.SESSION_LIST
    listed_states = LISTED_STATES
    most_dropped = ERASED_ROWS

    def __init__(self, partition: PartitionTable, partitions: int = 16) -> None:
        super().__init__(partition, partitions)
        #: Openings of sessions in `heads`; they never change.
        self._openings: dict[str, Opened] = {}

    def decode_head(self, value: bytes | None) -> SessionHead | None:
        return rows.head(value)

    def remember(self, id: str, head: SessionHead | None) -> None:
        """Cache a decoded head, or drop it; drop the opening once its row is erased."""
        super().remember(id, head)
        if head is None or (self.is_erased(head) and not head.unmetered):
            self._openings.pop(id, None)

    def on_eviction(self, id: str) -> None:
        self._openings.pop(id, None)

    def is_erased(self, head: SessionHead) -> bool:
        return head.state is SessionState.DELETED

    def listed_as(self, head: SessionHead) -> tuple[SessionState, int] | None:
        """Return its state; the time is always that of the opening."""
        return None if head.state is SessionState.DELETED else (head.state, 0)

    def origin(self, request: bytes | None) -> tuple[str, int] | None:
        """Return the project and time of an opening."""
        opened = rows.opened(request)
        return None if opened is None else (opened.project, opened.at)

    def first_needed(self, head: SessionHead) -> int:
        return head.next if head.ended else head.cursor.keep

    def spared_keys(self, id: str, rest: SessionHead | None) -> Collection[bytes]:
        """Return the opening's key of a deleted session that is not fully in the ledger."""
        return [self.row_key(id, keys.REQUEST)] if rest is not None and rest.unmetered else ()

    def opened(self, session: str) -> Opened | None:
        opened = self._openings.get(session)
        if opened is None:
            opened = rows.opened(self.partition.get(self.row_key(session, keys.REQUEST)))
            if opened is not None and session in self.heads:
                self._openings[session] = opened
        return opened

    def project(self, id: str) -> str | None:
        opened = self.opened(id)
        return None if opened is None else opened.project

    def blocks(self, session: str, first: int, stop: int) -> list[Block]:
        """Return the blocks [first, stop) that exist."""
        lower, upper = (self.row_key(session, keys.RESULT, number) for number in (first, stop))
        return [block for _, value in self.partition.scan(lower, upper) if (block := rows.block(value))]
