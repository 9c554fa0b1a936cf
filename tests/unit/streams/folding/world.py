"""What the worlds of sessions and of jobs share: a partition with its changelog, and what a crash leaves of both."""

from collections.abc import Sequence
from typing import Any, Generic

from streams.folding.fold import Fold
from streams.folding.head_store import H, HeadStore
from streams.log import StoredRecord
from tests.unit.streams.lists import assert_listed
from tests.unit.streams.sessions.rows import MemoryPartition, fold, replay, run
from topics import keys
from topics.rows import AudioRow


class PartitionWorld(Generic[H]):
    """One partition whose logs are folded by the real folds; `begin` makes what a process holds in memory."""

    store: HeadStore[H]
    kind: bytes

    def __init__(self) -> None:
        self.partition = MemoryPartition()
        self.flushed = 0
        #: Commands and results that are folded, and those whose positions were noted.
        self.folded = self.committed = (0, 0)
        self.begin()
        self.store.claim_lists()
        self.commit()

    def begin(self) -> None:
        raise NotImplementedError

    def needed_audio(self, id: str, head: Any) -> Sequence[AudioRow]:
        raise NotImplementedError

    async def _park(self, partition: int, record: StoredRecord, cause: str) -> None:
        raise AssertionError(cause)

    def fold(self, records: list[StoredRecord], topic: Fold[H]) -> None:
        run(fold(self.store, records, topic, self._park))

    def commit(self) -> None:
        """Note the positions behind the rows that come of what is folded."""
        self.flushed = len(self.partition.changelog)
        self.committed = self.folded

    def tidy(self, id: str) -> None:
        while not self.store.purge(id):
            pass

    def lose(self, kept: float, local: bool, standby: bool) -> None:
        """Lose what a crash loses: the unflushed changelog but a share of it, and perhaps the local rows.

        Where a stand-by takes over in place of a node without local rows, its table was looked through when it was an
        owner's.
        """
        changelog = self.partition.changelog
        durable = self.flushed + int((len(changelog) - self.flushed) * kept)
        marks = {keys.INDEXED + self.kind: b""} if standby else {}
        rows = self.partition.rows if local else marks
        # How far the rows have the changelog is noted with the positions, so recovery repeats what came after.
        start = self.flushed if local else 0
        self.partition = MemoryPartition()
        self.partition.changelog = changelog[:durable]
        self.partition.rows = replay(rows, self.partition.changelog[start:])
        self.folded = self.committed
        self.begin()

    def survey(self) -> None:
        """As a node does before it serves: it makes the index where that is due, and looks at what is in it."""
        if not self.store.indexed:
            for _ in self.store.build_index():
                pass
        self.store.claim_lists()
        for id in list(self.store.unsettled_ids()):
            head = self.store.head(id)
            if head is None or not head.unsettled or self.store.is_erased(head):
                self.tidy(id)
            else:
                for row in self.needed_audio(id, head):
                    self.store.references.add(row.offset)
        self.store.redelivered.clear()
        self.assert_indexed()

    def assert_indexed(self) -> None:
        """What has work, or has left rows, is in the index; what is settled is not."""
        heads = {id: self.store.head(id) for id in self.store.all_ids()}
        unsettled = {id for id, head in heads.items() if head is None or head.unsettled}
        assert set(self.store.unsettled_ids()) == unsettled
        assert_listed(self.store)
