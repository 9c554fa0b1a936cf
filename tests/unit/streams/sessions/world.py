"""One partition of the service with its logs, folded by the real agents, and crashes at any point.

A crash leaves: the appended commands and results, a prefix of the changelog that includes everything up to the last
recorded positions, those positions, and the local rows or none of them. A node may crash again while it folds records
again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from streams.folding.awaited_verdicts import Verdicts
from streams.folding.fold import Changes
from streams.log import StoredRecord
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.metering import charges
from streams.sessions.results import SessionResults
from streams.sessions.store import SessionStore
from tests.unit.streams.folding.world import PartitionWorld
from tests.unit.streams.sessions.rows import delivered
from topics import keys
from topics.folding import AudioRow
from topics.ports.ledger import Charge
from topics.sessions.records import Cursor, Failed, Metered, Scored, SessionResult, Tuned
from topics.sessions.rules import SessionHead, SessionState
from topics.sessions.sounds import SoundRule

TAGS = 3
MODEL = "model@00000000"
IDLE_MS = 3_600_000
BAD = b"!"


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


class World(PartitionWorld[SessionHead]):
    """The partition; every public method is a possible next event."""

    store: SessionStore
    kind = keys.SESSION

    def __init__(self, commands: list[StoredRecord]) -> None:
        self.commands = commands
        self.results: list[StoredRecord] = []
        #: The ledger's content, by session and step: it survives every crash.
        self.ledger: dict[tuple[str, int], Charge] = {}
        #: Commands that a crash finds in the log.
        self.reached = 0
        self.parked: list[tuple[int, str]] = []
        super().__init__()

    def begin(self) -> None:
        """Create a process's memory."""
        self.store = SessionStore(self.partition)
        # So that sessions of few chunks also leave rows for `purge`.
        self.store.most_dropped = 3
        self.intake = SessionIntake(Verdicts(), IDLE_MS, self._announce, AudioCache(0))
        self.results_agent = SessionResults(self._announce)
        #: Chunks taken by the analysis of a session, and the `keep` of its last result.
        self.jobs: dict[str, tuple[int, int]] = {}

    def _announce(self, changes: Changes) -> None:
        for session in changes.gone:
            self.jobs.pop(session, None)
        for session in changes.leftovers:
            self.tidy(session)

    async def _park(self, partition: int, record: StoredRecord, cause: str) -> None:
        self.parked.append((record.offset, cause))

    def needed_audio(self, id: str, head: SessionHead) -> Sequence[AudioRow]:
        return self.store.audio(id, head.cursor.keep, head.next) if head.audio and not head.ended else ()

    def head(self, session: str) -> SessionHead:
        head = self.store.head(session)
        assert head is not None
        return head

    def fold_commands(self, count: int) -> None:
        at, results = self.folded
        self.fold(self.commands[at : at + count], self.intake)
        self.folded = min(at + count, len(self.commands)), results
        self.reached = max(self.reached, self.folded[0])

    def fold_results(self, count: int) -> None:
        commands, at = self.folded
        self.fold(self.results[at : at + count], self.results_agent)
        self.folded = commands, min(at + count, len(self.results))

    # --- analysis: one window per chunk; the last chunk is kept for the next window -----------------------------------

    def unfinished(self) -> list[str]:
        found = []
        for session in self.store.all_ids():
            head = self.store.head(session)
            if head is not None and head.analysable and not self._is_done(session, head):
                found.append(session)
        return found

    def _is_done(self, session: str, head: SessionHead) -> bool:
        """Return whether everything is emitted; results may be in flight."""
        taken = self.jobs.get(session, (head.cursor.keep, 0))[0]
        return taken > head.next or (taken == head.next and head.state is SessionState.WRITABLE)

    def analyse(self, session: str, count: int) -> None:
        """Emit the windows of the next chunks of a session, or its end."""
        head = self.head(session)
        taken, dropped = self.jobs.get(session, (head.cursor.keep, head.cursor.keep))
        if taken >= head.next:
            self._emit(session, Scored(taken, MODEL, b"", Cursor(taken, taken), dropped, final=True))
            self.jobs[session] = taken + 1, taken
            return
        packed = b""
        rows = self.store.audio(session, taken, min(head.next, taken + count))
        assert rows, f"chunk {taken} of {head} is missing"
        for number, data in enumerate(map(self._audio, rows), taken):
            if data == BAD:
                self._emit(
                    session, Scored(taken, MODEL, packed, Cursor(number, max(0, number - 1)), dropped, tags=TAGS)
                )
                self._emit(session, Failed(f"chunk {number}"))
                self.jobs[session] = 2**40, 0
                return
            packed += score(data)
        after = taken + len(rows)
        self._emit(session, Scored(taken, MODEL, packed, Cursor(after, after - 1), dropped, tags=TAGS))
        self.jobs[session] = after, after - 1

    def _audio(self, row: AudioRow) -> bytes:
        value = self.commands[row.offset].value
        assert value is not None
        data: bytes = msgspec.msgpack.decode(value[1:])[3]
        assert len(data) == row.length
        return data

    def _emit(self, session: str, result: SessionResult) -> None:
        self.results.append(delivered(len(self.results), session, result))

    def meter(self) -> None:
        """Write pending charges to the ledger, and their records to the log."""
        for session in list(self.store.all_ids()):
            head, opened = self.store.head(session), self.store.opened(session)
            if head is not None and opened is not None and head.unmetered:
                metered = Metered(head.meterable, bool(head.predicts))
                for charge in charges(session, opened, metered, head.metered or 0):
                    self.ledger.setdefault((session, charge.step), charge)
                self._emit(session, metered)

    def tune(self, windows: int) -> None:
        """Change the rules of every session's sounds."""
        for session in list(self.store.all_ids()):
            self._emit(session, Tuned(f"t{len(self.results)}", SoundRule(windows, windows)))

    # --- crash and recovery -----------------------------------------------------------------------------------------

    def crash(self, crash: Crash) -> None:
        """Lose what a crash loses; recover the rows, catch up with both logs, check the rows."""
        self.lose(crash.kept, crash.local, crash.standby)
        left, following = crash.then or (1 << 40, None)
        while self.folded != (self.reached, len(self.results)):
            commands = min(crash.batch, left, self.reached - self.folded[0])
            results = min(crash.batch, left) if not commands else 0
            self.fold_commands(commands)
            self.fold_results(results)
            left -= commands or results
            if following is not None and left <= 0:
                self.crash(following)
                return
        self.survey()

    def finish(self) -> None:
        """Fold and analyse until nothing is pending."""
        self.fold_commands(len(self.commands))
        self.fold_results(len(self.results))
        while sessions := self.unfinished():
            self.analyse(sessions[0], 3)
            self.fold_results(len(self.results))
        self.meter()
        self.fold_results(len(self.results))
