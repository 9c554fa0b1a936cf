"""One partition of the service with its logs, folded by the real agents, and crashes at any point.

What a crash leaves is what the two stores leave: commands and results that were appended, a prefix of the changelog
that is at least what the last commit flushed, the committed offsets, and the local rows or nothing of them.
"""

from __future__ import annotations

import zlib

import msgspec

from streams.folding.agent import Agent, Changes
from streams.folding.awaited_verdicts import Verdicts
from streams.folding.batch import fold_batch
from streams.folding.record import LogRecord
from streams.folding.references import References
from streams.sessions.audio import AudioCache
from streams.sessions.intake import SessionIntake
from streams.sessions.results import SessionResults
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import Delivered, MemoryPartition, delivered, replay, run
from topics.rows import AudioRow
from topics.sessions.records import Cursor, Failed, Scored, SessionResult
from topics.sessions.rules import SessionHead, SessionState

TAGS = 3
MODEL = "model@00000000"
IDLE_MS = 3_600_000
BAD = b"!"


def score(data: bytes) -> bytes:
    """Return the packed scores of the one window of a chunk."""
    return zlib.crc32(data).to_bytes(4, "big")[:TAGS]


class Crash(msgspec.Struct, frozen=True):
    """What a crash leaves: how much of the unflushed changelog, and whether the local rows are still there."""

    kept: float
    local: bool


class World:
    """The partition; every public method is something that may happen next."""

    def __init__(self, commands: list[Delivered]) -> None:
        self.commands = commands
        self.results: list[Delivered] = []
        self.partition = MemoryPartition()
        self.parked: list[tuple[int, str]] = []
        self.flushed = 0
        self.folded = self.committed = (0, 0)
        #: Commands that a crash finds in the log.
        self.reached = 0
        self._start()

    def _start(self) -> None:
        """What a process holds in memory."""
        references = References()
        self.store = SessionStore(self.partition)
        self.references = references
        self.intake = SessionIntake(Verdicts(), references, IDLE_MS, self._announce, AudioCache(0))
        self.results_agent = SessionResults(references, lambda changes: None, lambda model: ["tag"] * TAGS)
        #: Chunks taken by the analysis of a session, and the `keep` of its last result.
        self.jobs: dict[str, tuple[int, int]] = {}

    def _announce(self, changes: Changes) -> None:
        for session in changes.gone:
            self.jobs.pop(session, None)

    async def _park(self, partition: int, record: LogRecord, cause: str) -> None:
        self.parked.append((record.offset, cause))

    def _fold(self, records: list[Delivered], agent: Agent[SessionHead]) -> None:
        if records:
            run(fold_batch(lambda: self.store, records, agent, self._park))

    def fold_commands(self, count: int) -> None:
        at, results = self.folded
        self._fold(self.commands[at : at + count], self.intake)
        self.folded = min(at + count, len(self.commands)), results
        self.reached = max(self.reached, self.folded[0])

    def fold_results(self, count: int) -> None:
        commands, at = self.folded
        self._fold(self.results[at : at + count], self.results_agent)
        self.folded = commands, min(at + count, len(self.results))

    def commit(self) -> None:
        """Flush, then commit: the only order there is."""
        self.flushed = len(self.partition.changelog)
        self.committed = self.folded

    # --- analysis: one window a chunk, the last chunk is kept for the next window -------------------------------------

    def unfinished(self) -> list[str]:
        found = []
        for session, head in self.store.all_heads():
            if head is not None and head.analysable and not self._is_done(session, head):
                found.append(session)
        return found

    def _is_done(self, session: str, head: SessionHead) -> bool:
        """Everything is emitted; the results are on their way."""
        taken = self.jobs.get(session, (head.cursor.keep, 0))[0]
        return taken > head.next or (taken == head.next and head.state is SessionState.WRITABLE)

    def analyse(self, session: str, count: int) -> None:
        """Emit the windows of the next chunks of a session, or its end."""
        head = self.store.head(session)
        assert head is not None
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
                self._emit(session, Scored(taken, MODEL, packed, Cursor(number, max(0, number - 1)), dropped))
                self._emit(session, Failed(f"chunk {number}"))
                self.jobs[session] = 2**40, 0
                return
            packed += score(data)
        after = taken + len(rows)
        self._emit(session, Scored(taken, MODEL, packed, Cursor(after, after - 1), dropped))
        self.jobs[session] = after, after - 1

    def _audio(self, row: AudioRow) -> bytes:
        value = self.commands[row.offset].value
        assert value is not None
        data: bytes = msgspec.msgpack.decode(value[1:])[3]
        assert len(data) == row.length
        return data

    def _emit(self, session: str, result: SessionResult) -> None:
        self.results.append(delivered(len(self.results), session, result))

    # --- crash and recovery -----------------------------------------------------------------------------------------

    def crash(self, crash: Crash) -> None:
        """Lose what a crash loses; recover the rows, catch up with both logs, look at the rows."""
        changelog = self.partition.changelog
        durable = self.flushed + int((len(changelog) - self.flushed) * crash.kept)
        local = self.partition.rows if crash.local else {}
        # The persisted offset is as old as the last commit, so recovery repeats what came after it.
        start = self.flushed if crash.local else 0
        self.partition = MemoryPartition()
        self.partition.changelog = changelog[:durable]
        self.partition.rows = replay(local, self.partition.changelog[start:])
        self.folded = self.committed
        self._start()
        self.fold_commands(self.reached - self.folded[0])
        self.fold_results(len(self.results))
        self.survey()

    def survey(self) -> None:
        """As a node does before it serves."""
        for session, head in list(self.store.all_heads()):
            if head is None:
                self.store.tidy(session, None)

    def finish(self) -> None:
        """Fold and analyse until nothing is left to do."""
        self.fold_commands(len(self.commands))
        self.fold_results(len(self.results))
        while sessions := self.unfinished():
            self.analyse(sessions[0], 3)
            self.fold_results(len(self.results))
