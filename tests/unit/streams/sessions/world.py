"""One session in one partition with its log, folded and analysed by the real code, and what a crash leaves of it.

That is the log, a prefix of the changelog that includes everything up to the last recorded positions, those positions,
and the local rows or none of them. `tests/simulation` has random histories of crashes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streams.alarms.watcher import Watcher
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
from topics.alarms.alarms import Alarm
from topics.alarms.rules import StoredRule
from topics.alarms.tags import Classes
from topics.folding import AudioRow
from topics.sessions.records import Cursor, NewWindows, Opened, SessionCommand
from topics.sessions.rules import SessionHead

SESSION: Final = "S" * 24
TAG_NAMES: Final = ("Dog", "Cat", "Siren")
TAGS: Final = len(TAG_NAMES)
MODEL: Final = "model@00000000"
IDLE_MS: Final = 3_600_000
BEGUN: Final = 1_700_000_000_000


def score(number: int) -> bytes:
    return zlib.crc32(b"%d" % number).to_bytes(4, "big")[:TAGS]


class World(PartitionWorld[SessionHead]):
    """The partition, with one window per chunk."""

    store: SessionStore
    kind = keys.SESSION
    idle_ms = IDLE_MS
    #: Whether rows that are left are deleted at once.
    tidies = True

    def __init__(self, rules: Sequence[StoredRule] = ()) -> None:
        self.rules = rules
        self.log: list[StoredRecord] = []
        super().__init__()

    def begin(self) -> None:
        """Create a process's memory."""
        self.store = SessionStore(self.partition)
        self.verdicts, self.audio = Verdicts(), AudioCache(1000, Commands())
        self.announced: list[Changes] = []
        self.intake = SessionIntake(self.verdicts, self.idle_ms, self._announce, self.audio)
        self.may_show = True
        #: Alarms that subscribers heard about.
        self.made: list[Alarm] = []
        watcher = Watcher(self, self, self.made.extend)
        self.writer = WindowWriter(
            lambda session: self.store, self.intake, lambda store: self.may_show, self._later, watcher
        )
        self._delayed: list[Callable[[], None]] = []
        #: What the writer's callers were told.
        self.told: list[Exception | None] = []

    def of(self, project: str) -> Sequence[StoredRule]:
        return self.rules

    def tags(self, model: str) -> Sequence[str]:
        return TAG_NAMES

    def classes(self, model: str) -> Classes:
        return {}

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._delayed.append(call)

    def _announce(self, changes: Changes) -> None:
        self.announced.append(changes)
        for session in changes.leftovers if self.tidies else ():
            self.tidy(session)

    def needed_audio(self, id: str, head: SessionHead) -> Sequence[AudioRow]:
        return self.store.audio(id, head.cursor.keep, head.next) if head.audio and not head.ended else ()

    @property
    def head(self) -> SessionHead:
        head = self.store.head(SESSION)
        assert head is not None
        return head

    @property
    def opened(self) -> Opened:
        opened = self.store.opened(SESSION)
        assert opened is not None
        return opened

    def rows(self) -> dict[bytes, bytes]:
        """Return the rows of the session."""
        return {key: row for key, row in self.partition.rows.items() if key.startswith(keys.SESSION)}

    def take(self, *commands: SessionCommand) -> None:
        """Append commands to the log, and fold it."""
        for command in commands:
            self.log.append(delivered(len(self.log), SESSION, command, BEGUN))
        self.again(len(self.log) - self.folded[0])

    def again(self, count: int) -> None:
        """Fold the last records of the log, whether or not they were folded before."""
        self.fold(self.log[len(self.log) - count :], self.intake)
        self.folded = len(self.log), 0

    def analyse(self, chunks: int = 1) -> None:
        """Write the windows of the next chunks, or the session's end; all but the last chunk are released."""
        head = self.head
        first, stop = head.cursor.chunks, min(head.next, head.cursor.chunks + chunks)
        packed = b"".join(map(score, range(first, stop)))
        cursor = Cursor(stop, max(head.cursor.keep, stop - (stop > first)))
        new = NewWindows(head.windows, MODEL, packed, cursor, stop == first, TAGS)
        self.write(new)

    def hear(self) -> None:
        """Come to the notes of the source."""
        head = self.head
        notes = [msgspec.structs.replace(note, window=head.windows) for note in self.store.notes(SESSION, head.heard)]
        self.write(NewWindows(head.windows, MODEL, b"", head.cursor, notes=tuple(notes)))

    def put(self, new: NewWindows) -> None:
        """Write windows that the changelog does not have yet."""
        self.writer.put(SESSION, new, self.told.append)

    def write(self, *new: NewWindows) -> None:
        for one in new:
            self.put(one)
            self.show()

    def show(self) -> None:
        """Make the changelog durable, so that new windows are shown, and run what is due."""
        self.durable = len(self.partition.changelog)
        self.partition.sync()
        delayed, self._delayed = self._delayed, []
        for call in delayed:
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
