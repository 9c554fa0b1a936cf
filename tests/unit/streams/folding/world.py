"""Shared by the worlds of sessions and jobs: a partition with its changelog, and the remains of both after a crash."""

from collections.abc import Sequence
from typing import Any, Generic

from streams.folding.fold import Fold
from streams.folding.head_store import H, HeadStore
from streams.log import StoredRecord
from tests.unit.streams.lists import assert_listed
from tests.unit.streams.sessions.rows import MemoryPartition, fold, replay, run
from topics import keys
from topics.folding import AudioRow


class PartitionWorld(Generic[H]):
    """A partition whose logs the real folds fold; `begin` creates a process's memory."""

    store: HeadStore[H]
    kind: bytes

    def __init__(self) -> None:
        self.partition = MemoryPartition()
        #: Length of the changelog at the last commit, and as far as it is known to be durable.
        self.flushed = self.durable = 0
        #: Folded commands and results, and those with recorded positions.
        self.folded = self.committed = (0, 0)
        self.begin()
        self.commit()

    def begin(self) -> None:
        raise NotImplementedError

    def needed_audio(self, id: str, head: Any) -> Sequence[AudioRow]:
        raise NotImplementedError

    async def _park(self, partition: int, record: StoredRecord, cause: str, counts: bool) -> None:
        raise AssertionError(cause)

    def fold(self, records: list[StoredRecord], topic: Fold[H]) -> None:
        run(fold(self.store, records, topic, self._park))

    def commit(self) -> None:
        """Record the positions after the rows of folded records."""
        self.flushed = self.durable = len(self.partition.changelog)
        self.committed = self.folded

    def tidy(self, id: str) -> None:
        while not self.store.purge(id):
            pass

    def lose(self, kept: float, local: bool, standby: bool) -> None:
        """Lose what a crash loses: the end of the changelog except a share of it, and possibly the local rows.

        If a stand-by replaces a node without local rows, its table was checked when it was an owner's.
        """
        changelog = self.partition.changelog
        self.durable += int((len(changelog) - self.durable) * kept)
        marks = {keys.INDEXED + self.kind: b""} if standby else {}
        rows = self.partition.rows if local else marks
        # The rows' changelog position is recorded with the positions, so recovery replays what follows.
        start = self.flushed if local else 0
        self.partition = MemoryPartition()
        self.partition.changelog = changelog[: self.durable]
        self.partition.rows = replay(rows, self.partition.changelog[start:])
        self.folded = self.committed
        self.begin()

    def survey(self) -> None:
        """As a node does before it serves: create the index if due, and check its entries."""
        if not self.store.indexed:
            for _ in self.store.build_index():
                pass
        for id in list(self.store.unsettled_ids()):
            head = self.store.head(id)
            if head is None or not head.unsettled or self.store.is_erased(head):
                self.tidy(id)
            else:
                if self.store.has_dropped_audio(id, head):
                    self.tidy(id)
                for row in self.needed_audio(id, head):
                    self.store.references.add(row.offset)
        self.assert_indexed()

    def assert_indexed(self) -> None:
        """Check that ids with work or leftover rows are in the index, and settled ones are not."""
        heads = {id: self.store.head(id) for id in self.store.all_ids()}
        unsettled = {id for id, head in heads.items() if head is None or head.unsettled}
        assert set(self.store.unsettled_ids()) == unsettled
        assert_listed(self.store)
