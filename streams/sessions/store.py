"""The rows of the sessions of one partition, read with their types."""

from collections.abc import Collection

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

    def __init__(self, partition: PartitionTable, partitions: int = 16) -> None:
        """Read the rows of one of so many partitions."""
        super().__init__(partition, partitions)
        #: Openings of sessions in `heads`; they never change.
        self._openings: dict[str, Opened] = {}

    def decode_head(self, value: bytes | None) -> SessionHead | None:
        """Read a head row, None where there is none."""
        return rows.head(value)

    def remember(self, id: str, head: SessionHead | None) -> None:
        """Keep a head decoded, or forget it with its opening."""
        super().remember(id, head)
        if head is None:
            self._openings.pop(id, None)

    def on_eviction(self, id: str) -> None:
        self._openings.pop(id, None)

    def is_erased(self, head: SessionHead) -> bool:
        """Return whether a head is that of a deleted session."""
        return head.state is SessionState.DELETED

    def listed_as(self, head: SessionHead) -> tuple[SessionState, int] | None:
        """Return its state; its time is that of the opening."""
        return None if head.state is SessionState.DELETED else (head.state, 0)

    def origin(self, request: bytes | None) -> tuple[str, int] | None:
        """Return project and time of an opening."""
        opened = rows.opened(request)
        return None if opened is None else (opened.project, opened.at)

    def spared_keys(self, id: str, rest: SessionHead | None) -> Collection[bytes]:
        """Return the key of the opening while the ledger does not hold all of a deleted session."""
        return () if rest is None else [self.row_key(id, keys.REQUEST)]

    def opened(self, session: str) -> Opened | None:
        """Return what the session was opened with."""
        opened = self._openings.get(session)
        if opened is None:
            opened = rows.opened(self.partition.get(self.row_key(session, keys.REQUEST)))
            if opened is not None and session in self.heads:
                self._openings[session] = opened
        return opened

    def project(self, id: str) -> str | None:
        """Return whose a session is."""
        opened = self.opened(id)
        return None if opened is None else opened.project

    def block(self, session: str, number: int) -> Block | None:
        return rows.block(self.partition.get(self.row_key(session, keys.RESULT, number)))

    def blocks(self, session: str, first: int, stop: int) -> list[Block]:
        """Return the blocks [first, stop) as far as they exist."""
        lower, upper = (self.row_key(session, keys.RESULT, number) for number in (first, stop))
        return [block for _, value in self.partition.scan(lower, upper) if (block := rows.block(value))]
