"""Session rows of one partition: typed reading, and a draft that gathers the writes of one batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from topics import keys, rows
from topics.lifecycle import Head, Receipt
from topics.records import Opened
from topics.rows import Block, ChunkRow

HEADS_CACHED: Final = 4096


class Partition(Protocol):
    """The rows of one partition, as the driver gives them."""

    @property
    def number(self) -> int:
        """The partition's number."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None where there is none."""
        ...

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with lower <= key < upper, in order, at most `limit`."""
        ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply all changes at once (None deletes), and log them to the changelog."""
        ...


def above(prefix: bytes) -> bytes:
    """Return the smallest key above all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class SessionStore:
    """Typed reading of the sessions of one partition, with the heads of active sessions kept decoded."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.heads: OrderedDict[str, Head] = OrderedDict()
        #: Openings of sessions in `heads`; they never change.
        self._openings: dict[str, Opened] = {}

    def head(self, session: str) -> Head | None:
        """Return the head of a session, None where there is none."""
        known = self.heads.get(session)
        if known is None:
            known = rows.head(self.partition.get(keys.session_key(session, keys.HEAD)))
            if known is not None:
                self.remember(session, known)
        return known

    def remember(self, session: str, head: Head | None) -> None:
        """Keep a head decoded, or forget it."""
        if head is None:
            self.heads.pop(session, None)
            self._openings.pop(session, None)
            return
        self.heads[session] = head
        self.heads.move_to_end(session)
        if len(self.heads) > HEADS_CACHED:
            self._openings.pop(self.heads.popitem(last=False)[0], None)

    def opened(self, session: str) -> Opened | None:
        """Return what the session was opened with."""
        known = self._openings.get(session)
        if known is None:
            known = rows.opened(self.partition.get(keys.session_key(session, keys.OPENED)))
            if known is not None and session in self.heads:
                self._openings[session] = known
        return known

    def receipt(self, session: str, sequence: int) -> Receipt | None:
        """Return the receipt of an upload that had an Idempotency-Key."""
        return rows.receipt(self.partition.get(keys.session_key(session, keys.RECEIPT, sequence)))

    def chunk(self, session: str, sequence: int) -> ChunkRow | None:
        """Return one chunk row."""
        return rows.chunk(self.partition.get(keys.session_key(session, keys.CHUNK, sequence)))

    def chunks(self, session: str, first: int, stop: int) -> list[ChunkRow]:
        """Return the chunk rows [first, stop) as far as they exist without a gap."""
        lower, upper = (keys.session_key(session, keys.CHUNK, number) for number in (first, stop))
        found = []
        for expected, (key, value) in enumerate(self.partition.scan(lower, upper), first):
            row = rows.chunk(value)
            if keys.number_of(key) != expected or row is None:
                break
            found.append(row)
        return found

    def block(self, session: str, number: int) -> Block | None:
        """Return one block of windows."""
        return rows.block(self.partition.get(keys.session_key(session, keys.BLOCK, number)))

    def blocks(self, session: str, first: int, stop: int) -> list[Block]:
        """Return the blocks [first, stop) as far as they exist."""
        lower, upper = (keys.session_key(session, keys.BLOCK, number) for number in (first, stop))
        return [block for _, value in self.partition.scan(lower, upper) if (block := rows.block(value))]

    def sessions(self) -> Iterator[tuple[str, Head | None]]:
        """Yield every session of the partition with its head; skips from session to session.

        The head is None where only the head of a deleted session reached the changelog as deleted before a crash.
        """
        lower, end = keys.SESSION, above(keys.SESSION)
        while (key := next((key for key, _ in self.partition.scan(lower, end, 1)), None)) is not None:
            session = key[1 : 1 + keys.ID_LENGTH].decode("ascii")
            yield session, self.head(session)
            lower = above(keys.session_prefix(session))

    def erase(self, session: str) -> None:
        """Delete every row of a session at once."""
        draft = Draft(self)
        draft.erase(session)
        draft.keep()
        draft.apply()

    def due(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        """Return (due time, session) of entries of the expiry index up to `now_ms`, oldest first."""
        found = self.partition.scan(keys.DUE, keys.due_key(now_ms + 1, ""), limit)
        return [keys.parse_due(key) for key, _ in found]


class Draft:
    """The writes of one batch: read through, dropped record by record on failure, applied at once at the end."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._changes: dict[bytes, bytes | None] = {}
        self._heads: dict[str, Head | None] = {}
        self.begin()

    def begin(self) -> None:
        """Start a record; what an unfinished one wrote is forgotten."""
        self._record_changes: dict[bytes, bytes | None] = {}
        self._record_heads: dict[str, Head | None] = {}

    def keep(self) -> None:
        """End a record: its writes belong to the batch."""
        self._changes.update(self._record_changes)
        self._heads.update(self._record_heads)
        self.begin()

    def head(self, session: str) -> Head | None:
        """Return the head as the batch sees it."""
        for heads in (self._record_heads, self._heads):
            if session in heads:
                return heads[session]
        return self.store.head(session)

    def put_head(self, session: str, head: Head) -> None:
        """Write a head; encoded once, at the end, however often the batch changes it."""
        self._record_heads[session] = head

    def get(self, key: bytes) -> bytes | None:
        """Return a value as the batch sees it."""
        for changes in (self._record_changes, self._changes):
            if key in changes:
                return changes[key]
        return self.store.partition.get(key)

    def chunks(self, session: str) -> Iterator[ChunkRow]:
        """Yield the chunk rows that a session still holds, as the batch sees them."""
        head = self.head(session)
        for sequence in range(head.cursor.keep, head.next) if head is not None else ():
            row = rows.chunk(self.get(keys.session_key(session, keys.CHUNK, sequence)))
            if row is not None:
                yield row

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self._record_changes[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a row; logged even when the row is not there, since an earlier deletion may not have been."""
        self._record_changes[key] = None

    def erase(self, session: str) -> None:
        """Delete every row of a session, those of this batch included."""
        prefix = keys.session_prefix(session)
        written = [key for key in self._changes if key.startswith(prefix)]
        stored = [key for key, _ in self.store.partition.scan(prefix, above(prefix))]
        for key in (*written, *stored, keys.session_key(session, keys.HEAD)):
            self.delete(key)
        self._record_heads[session] = None

    def apply(self) -> None:
        """Write everything at once."""
        for session, head in self._heads.items():
            if head is not None:
                self._changes[keys.session_key(session, keys.HEAD)] = rows.encode(head)
        if self._changes:
            self.store.partition.write(self._changes)
        for session, head in self._heads.items():
            self.store.remember(session, head)
