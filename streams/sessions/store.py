"""Reads the rows of one partition's sessions with their types."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from streams.alarms.alarm_rows import AlarmRows
from streams.alarms.watcher import Watching
from streams.folding.draft import ERASED_ROWS
from streams.folding.head_store import HeadStore, PartitionTable, above
from streams.folding.presence import Presence
from topics import keys
from topics.rows import encode
from topics.sessions import rows
from topics.sessions.capture import CaptureTime, SourceNote
from topics.sessions.records import Opened
from topics.sessions.rows import BLOCK_WINDOWS, Block
from topics.sessions.rules import LISTED_STATES, SessionHead, SessionState

#: Sessions whose rules of alarms are in memory: for all partitions of a node together, and the minimum for one.
WATCHING: Final = 4096
WATCHING_LEAST: Final = 256


class SessionStore(HeadStore[SessionHead]):
    """The sessions of one partition. Loop only."""

    space = keys.SESSION
    index = keys.SESSION_DUE
    unsettled = keys.SESSION_OPEN
    listing = keys.SESSION_LIST
    listed_states = LISTED_STATES
    most_dropped = ERASED_ROWS

    def __init__(self, partition: PartitionTable, partitions: int = 16, presence: Presence | None = None) -> None:
        super().__init__(partition, partitions, presence)
        #: Openings of sessions in `heads`; they never change.
        self._openings: dict[str, Opened] = {}
        #: Windows that the changelog may not have yet: their end and their rows, by session.
        self.coming: dict[str, tuple[int, Mapping[bytes, bytes]]] = {}
        #: Sessions with windows that the changelog has and this table not.
        self.behind: set[str] = set()
        #: Sessions whose clients tell of their source, which may have ended since.
        self.watched: set[str] = set()
        self.alarms = AlarmRows(partition, self._is_open)
        self._watching: OrderedDict[str, Watching] = OrderedDict()
        self._watching_most = max(WATCHING_LEAST, WATCHING // partitions)

    def read_head(self, id: str) -> SessionHead | None:
        head = rows.head(self.partition.get(self.row_key(id, keys.HEAD)))
        if head is None or head.state is SessionState.DELETED:
            return head
        return rows.whole(head, self.newest(id))

    def head_row(self, head: SessionHead) -> bytes:
        return encode(rows.stored(head))

    def newest(self, id: str) -> rows.Newest | None:
        """Return how far the analysis of a session came, with its newest windows."""
        return rows.newest(self.partition.get(self.row_key(id, keys.NEWEST)))

    def on_way(self, id: str) -> Iterable[bytes]:
        return self.coming[id][1] if id in self.coming else ()

    def remember(self, id: str, head: SessionHead | None) -> None:
        """Cache a decoded head, or drop it; drop the opening once its row is erased."""
        super().remember(id, head)
        if head is None or self.is_erased(head):
            self._watching.pop(id, None)
            if head is None or not head.unmetered:
                self._openings.pop(id, None)

    def on_eviction(self, id: str) -> None:
        self._openings.pop(id, None)

    def _is_open(self, session: str) -> bool:
        head = self.peek(session)
        return head is not None and not self.is_erased(head)

    def watching(self, session: str) -> Watching | None:
        """Return what is in memory of the rules of alarms for a session."""
        if (known := self._watching.get(session)) is not None:
            self._watching.move_to_end(session)
        return known

    def watch(self, session: str, watching: Watching) -> None:
        """Keep that, for the sessions that had windows last."""
        self._watching[session] = watching
        if len(self._watching) > self._watching_most:
            self._watching.popitem(last=False)

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

    def time_of(self, session: str, position_ms: int) -> CaptureTime:
        """Return when the audio at a position of a session was captured."""
        head = self.heads.get(session)
        # The head that a stand-by reads may be older than the anchors; it is not among the cached ones.
        anchor = None if head is None else head.anchor
        if head is None or (anchor is not None and position_ms < anchor.position_ms):
            first, upper = keys.anchor_key(session, position_ms), above(self.row_key(session, keys.ANCHOR))
            found = [rows.anchor(value) for _, value in self.partition.scan(first, upper, 1)]
            anchor = found[0] if found else None
        if anchor is not None:
            return CaptureTime(anchor.at(position_ms), anchor.told)
        head = head or self.peek(session)
        return CaptureTime((0 if head is None else head.opened_at) + position_ms, told=False)

    def notes(self, session: str, first: int, stop: int = keys.LATEST_MS) -> Sequence[SourceNote]:
        """Return the notes [first, stop) of a session's source, also those that the analysis has not come to."""
        lower, upper = (self.row_key(session, keys.NOTE, number) for number in (first, stop))
        found = (rows.note(value) for _, value in self.partition.scan(lower, upper))
        return [note for note in found if note is not None]

    def made(self, id: str) -> int:
        """Return the number of windows made in this process, also of those that no reader sees yet; 0 if unknown."""
        return self.coming[id][0] if id in self.coming else 0

    def blocks(self, session: str, first: int, stop: int) -> list[Block]:
        """Return the blocks [first, stop) that exist and are not empty."""
        head = self.peek(session)
        full = 0 if head is None else head.windows // BLOCK_WINDOWS
        lower, upper = (self.row_key(session, keys.RESULT, number) for number in (first, min(stop, full)))
        full_rows = self.partition.scan(lower, upper) if first < full else ()
        found = [block for _, value in full_rows if (block := rows.block(value))]
        if first <= full < stop and (newest := self.newest(session)) is not None and newest.block.scores:
            found.append(newest.block)
        return found
