"""One session in one partition with its log, folded and analysed by the real code, and what a crash leaves of it.

That is the log, a prefix of the changelog that includes everything up to the last recorded positions, those positions,
and the local rows or none of them. `tests/simulation` has random histories of crashes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.fold import Changes
from streams.log import StoredRecord
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from tests.unit.streams.folding.world import PartitionWorld
from tests.unit.streams.sessions.rows import delivered
from tests.unit.streams.sessions.studio import Commands
from topics import keys, rows
from topics.folding import AudioRow
from topics.sessions.records import Cursor, NewWindows, SessionCommand
from topics.sessions.rules import SessionHead

SESSION: Final = "S" * 24
TAGS: Final = 3
MODEL: Final = "model@00000000"
IDLE_MS: Final = 3_600_000
BEGUN: Final = 1_700_000_000_000


def score(number: int) -> bytes:
    return zlib.crc32(b"%d" % number).to_bytes(4, "big")[:TAGS]


class World(PartitionWorld[SessionHead]):
    """The partition, with one window per chunk."""

    store: SessionStore
    kind = keys.SESSION

    def __init__(self) -> None:
        self.log: list[StoredRecord] = []
        super().__init__()

    def begin(self) -> None:
        """Create a process's memory."""
        self.store = SessionStore(self.partition)
        self.intake = SessionIntake(Verdicts(), IDLE_MS, self._announce, AudioCache(0, Commands()))
        self.writer = WindowWriter(lambda session: self.store, self.intake, lambda store: True, self._later)
        self.due: list[Callable[[], None]] = []

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append(call)

    def _announce(self, changes: Changes) -> None:
        for session in changes.leftovers:
            self.tidy(session)

    def needed_audio(self, id: str, head: SessionHead) -> Sequence[AudioRow]:
        return self.store.audio(id, head.cursor.keep, head.next) if head.audio and not head.ended else ()

    @property
    def head(self) -> SessionHead:
        head = self.store.head(SESSION)
        assert head is not None
        return head

    def rows(self) -> dict[bytes, bytes]:
        """Return the rows of the session."""
        return {key: row for key, row in self.partition.rows.items() if key.startswith(keys.SESSION)}

    def take(self, *commands: SessionCommand) -> None:
        """Append commands to the log, and fold it."""
        for command in commands:
            self.log.append(delivered(len(self.log), SESSION, command, BEGUN))
        self.fold(self.log[self.folded[0] :], self.intake)
        self.folded = len(self.log), 0

    def analyse(self, chunks: int = 1) -> None:
        """Write the windows of the next chunks, or the session's end; all but the last chunk are released."""
        head = self.head
        first, stop = head.cursor.chunks, min(head.next, head.cursor.chunks + chunks)
        packed = b"".join(map(score, range(first, stop)))
        cursor = Cursor(stop, max(head.cursor.keep, stop - (stop > first)))
        new = NewWindows(head.windows, MODEL, packed, cursor, stop == first, TAGS)
        self.writer.put(SESSION, new, lambda error: None)
        self.show()

    def show(self) -> None:
        """Make the changelog durable, so that new windows are shown."""
        self.durable = len(self.partition.changelog)
        self.partition.sync()
        due, self.due = self.due, []
        for call in due:
            call()

    def commit(self) -> None:
        self.show()
        super().commit()

    def crash(self, kept: float, local: bool, standby: bool = False) -> None:
        """Lose what a crash loses; recover the rows, catch up with the log, check the rows."""
        self.lose(kept, local, standby)
        self.take()
        self.survey()
        self._assert_held()

    def _assert_held(self) -> None:
        """Check that the held offsets are exactly those of the rows and the head, so that the log is trimmed right."""
        held = [
            row.offset for key, value in self.rows().items() if key[25:26] == keys.AUDIO and (row := rows.audio(value))
        ]
        held += [row.offset for session in self.store.all_ids() for row in self.head.recent]
        assert self.store.references.lowest() == min(held, default=None)
