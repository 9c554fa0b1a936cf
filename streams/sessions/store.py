"""The rows of the sessions of one partition, read with their types."""

from __future__ import annotations

from streams.folding.store import HeadStore, Partition
from topics import keys
from topics.folding import Receipt
from topics.rows import AudioRow, audio
from topics.sessions import rows
from topics.sessions.records import Opened
from topics.sessions.rows import Block
from topics.sessions.rules import SessionHead


class SessionStore(HeadStore[SessionHead]):
    """Typed reading of the sessions of one partition."""

    kind = keys.SESSION
    index = keys.DUE

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        #: Openings of sessions in `heads`; they never change.
        self._openings: dict[str, Opened] = {}

    def head_key(self, name: str) -> bytes:
        """Return the key of a session's head."""
        return keys.session_key(name, keys.HEAD)

    def decoded(self, value: bytes | None) -> SessionHead | None:
        """Read a head row, None where there is none."""
        return rows.head(value)

    def remember(self, name: str, head: SessionHead | None) -> None:
        """Keep a head decoded, or forget it with its opening."""
        super().remember(name, head)
        if head is None:
            self._openings.pop(name, None)

    def evicted(self, name: str) -> None:
        """Forget the opening too."""
        self._openings.pop(name, None)

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

    def chunk(self, session: str, sequence: int) -> AudioRow | None:
        """Return one chunk row."""
        return audio(self.partition.get(keys.session_key(session, keys.CHUNK, sequence)))

    def chunks(self, session: str, first: int, stop: int) -> list[AudioRow]:
        """Return the chunk rows [first, stop) as far as they exist without a gap."""
        return self.unbroken(*(keys.session_key(session, keys.CHUNK, number) for number in (first, stop)))

    def block(self, session: str, number: int) -> Block | None:
        """Return one block of windows."""
        return rows.block(self.partition.get(keys.session_key(session, keys.BLOCK, number)))

    def blocks(self, session: str, first: int, stop: int) -> list[Block]:
        """Return the blocks [first, stop) as far as they exist."""
        lower, upper = (keys.session_key(session, keys.BLOCK, number) for number in (first, stop))
        return [block for _, value in self.partition.scan(lower, upper) if (block := rows.block(value))]
