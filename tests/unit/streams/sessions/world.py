"""One partition of the service with its log, folded and analysed by the real code, and crashes at any point.

A crash leaves: the appended commands, a prefix of the changelog that includes everything up to the last recorded
positions, those positions, and the local rows or none of them. A node may crash again while it folds records again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.fold import Changes
from streams.log import StoredRecord
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.metering import charges
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from tests.unit.streams.folding.world import PartitionWorld
from tests.unit.streams.sessions.rows import delivered
from tests.unit.streams.sessions.studio import Commands
from topics import keys, record_codec
from topics.choices import SoundRule
from topics.folding import AudioRow
from topics.ports.ledger import Charge
from topics.sessions.records import Chunk, Cursor, Expired, Failed, Metered, NewWindows, SessionNote, Tuned
from topics.sessions.rules import SessionHead

TAGS = 3
MODEL = "model@00000000"
IDLE_MS = 3_600_000
BAD = b"!"
#: Offsets between two commands of a history: notes of the service come between them.
STEP: Final = 1000


def score(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")[:TAGS]


class Crash(msgspec.Struct, frozen=True):
    """The remains of a crash: a share of the unflushed changelog, and whether the local rows survive."""

    kept: float
    local: bool
    #: Without the local rows: a stand-by takes over, whose table was checked when it was an owner's.
    standby: bool = False
    #: Records that are folded again per batch.
    batch: int = 1000
    #: The next crash, after that many records were folded again.
    then: tuple[int, Crash] | None = None


def _spread(record: StoredRecord) -> StoredRecord:
    """Return a command of a history at its place among notes of the service."""
    command = record_codec.decode_command(record.value)
    if isinstance(command, Expired) and command.seen > 0:
        command = msgspec.structs.replace(command, seen=command.seen * STEP)
    return msgspec.structs.replace(record, offset=record.offset * STEP, value=record_codec.encode(command))


class World(PartitionWorld[SessionHead]):
    """The partition; every public method is a possible next event."""

    store: SessionStore
    kind = keys.SESSION

    def __init__(self, commands: list[StoredRecord]) -> None:
        #: Commands to come, and the log.
        self.coming = list(map(_spread, commands))
        self.log: list[StoredRecord] = []
        #: The ledger's content, by session and step: it survives every crash.
        self.ledger: dict[tuple[str, int], Charge] = {}
        self.parked: list[tuple[int, str]] = []
        super().__init__()

    def begin(self) -> None:
        """Create a process's memory."""
        self.store = SessionStore(self.partition)
        # So that sessions of few chunks also leave rows for `purge`.
        self.store.most_dropped = 3
        self.intake = SessionIntake(Verdicts(), IDLE_MS, self._announce, AudioCache(0, Commands()))
        self.writer = WindowWriter(lambda session: self.store, self.intake, lambda store: True, self._later)
        self.due: list[Callable[[], None]] = []

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append(call)

    def _announce(self, changes: Changes) -> None:
        for session in changes.leftovers:
            self.tidy(session)

    async def _park(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        self.parked.append((record.offset, cause))

    def needed_audio(self, id: str, head: SessionHead) -> Sequence[AudioRow]:
        return self.store.audio(id, head.cursor.keep, head.next) if head.audio and not head.ended else ()

    def head(self, session: str) -> SessionHead:
        head = self.store.head(session)
        assert head is not None
        return head

    def append(self, session: str, note: SessionNote) -> None:
        last = self.log[-1]
        self.log.append(delivered(last.offset + 1, session, note, last.timestamp))

    def fold_commands(self, count: int) -> None:
        """Fold records of the log, and then the next commands of the history."""
        at = self.folded[0]
        missing = max(0, at + count - len(self.log))
        self.log += self.coming[:missing]
        del self.coming[:missing]
        self.fold(self.log[at : at + count], self.intake)
        self.folded = min(at + count, len(self.log)), 0

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

    # --- analysis: one window per chunk; the last chunk is kept for the next window -----------------------------------

    def unfinished(self) -> list[str]:
        return [
            session
            for session in self.store.all_ids()
            if (head := self.store.head(session)) is not None and head.analysable and not self.store.made(session)
        ]

    def analyse(self, session: str, count: int) -> None:
        """Write the windows of the next chunks of a session, or its end."""
        head = self.head(session)
        taken, packed = head.cursor.chunks, b""
        rows = self.store.audio(session, taken, min(head.next, taken + count))
        assert rows or taken >= head.next, f"chunk {taken} of {head} is missing"
        for data in map(self._audio, rows):
            if data == BAD and not packed:
                self.append(session, Failed("analysis", f"chunk {taken}", head.windows))
                self.fold_commands(len(self.log) - self.folded[0])
                return
            if data == BAD:
                break
            packed += score(data)
        after = taken + len(packed) // TAGS
        keep = after if not packed else after - 1
        new = NewWindows(head.windows, MODEL, packed, Cursor(after, max(keep, head.cursor.keep)), not rows, TAGS)
        self.writer.put(session, new, lambda error: None)

    def _audio(self, row: AudioRow) -> bytes:
        value = next(record.value for record in self.log if record.offset == row.offset)
        command = record_codec.decode_command(value)
        assert isinstance(command, Chunk)
        assert len(command.data) == row.length
        return command.data

    def meter(self) -> None:
        """Write pending charges to the ledger, and their records to the log."""
        for session in list(self.store.all_ids()):
            head, opened = self.store.head(session), self.store.opened(session)
            if head is not None and opened is not None and head.unmetered:
                metered = Metered("ledger", head.meterable, bool(head.predicts))
                for charge in charges(session, opened, metered, head.metered or 0):
                    self.ledger.setdefault((session, charge.step), charge)
                self.append(session, metered)

    def tune(self, windows: int) -> None:
        """Change the rules of every session's sounds."""
        for session in list(self.store.all_ids()):
            self.append(session, Tuned(f"t{len(self.log)}", SoundRule(windows, windows)))

    # --- crash and recovery -----------------------------------------------------------------------------------------

    def crash(self, crash: Crash) -> None:
        """Lose what a crash loses; recover the rows, catch up with the log, check the rows."""
        self.lose(crash.kept, crash.local, crash.standby)
        left, following = crash.then or (1 << 40, None)
        while self.folded[0] < len(self.log):
            some = min(crash.batch, left, len(self.log) - self.folded[0])
            self.fold_commands(some)
            left -= some
            if following is not None and left <= 0:
                self.crash(following)
                return
        self.survey()

    def finish(self) -> None:
        """Fold and analyse until nothing is pending."""
        self.fold_commands(len(self.log) + len(self.coming))
        self.show()
        while sessions := self.unfinished():
            self.analyse(sessions[0], 3)
            self.show()
        self.meter()
        self.fold_commands(len(self.log))
