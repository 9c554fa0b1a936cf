"""The rows of one partition, read with their types; heads are kept decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from streams.folding.by_project import ByProject
from streams.folding.references import References
from topics import keys, rows
from topics.errors import RecordError
from topics.folding import Head
from topics.rows import AudioRow

H = TypeVar("H", bound=Head)

HEADS_CACHED: Final = 4096
#: Rows that are deleted at once of what is left of an erased id.
TIDIED_ROWS: Final = 1000


class PartitionTable(Protocol):
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

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        """Yield the first key of [lower, upper), then the first at or above `following` of it, and so on."""
        ...

    def mark(self, key: bytes) -> None:
        """Write a row without content to this table alone: the changelog does not get it."""
        ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply all changes at once (None deletes), and log them to the changelog."""
        ...


def above(prefix: bytes) -> bytes:
    """Return the smallest key above all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class HeadStore(ABC, Generic[H]):
    """The rows of the sessions, or of the jobs, of one partition; heads of active ones are kept decoded."""

    #: What all their keys begin with (`topics.keys`), those of the expiry index, and of the index of the unsettled.
    room: bytes
    index: bytes
    unsettled: bytes

    def __init__(self, partition: PartitionTable) -> None:
        self.partition = partition
        self.heads: OrderedDict[str, H] = OrderedDict()
        #: Records of the command topic that hold audio which is still needed.
        self.references = References()
        #: Whose the unsettled ids are, but for uploads that nobody knows the project of yet.
        self.projects = ByProject()
        #: Ids with commands that were folded before the partition came here.
        self.redelivered: set[str] = set()

    @abstractmethod
    def decode_head(self, value: bytes | None) -> H | None:
        """Read a head row, None where there is none."""

    @abstractmethod
    def project(self, id: str) -> str | None:
        """Return whose a session or job is, None where that is not known yet."""

    def spared_keys(self, id: str, rest: H | None) -> Collection[bytes]:
        """Return the keys of rows beside the head that outlive an erasure which leaves the head `rest`."""
        return ()

    def row_key(self, id: str, kind: bytes, number: int | None = None) -> bytes:
        """Return the key of a row, as `topics.keys.row_key`."""
        prefix = self.room + id.encode("ascii") + kind
        return prefix if number is None else prefix + number.to_bytes(8, "big")

    def due_key(self, due_ms: int, id: str) -> bytes:
        """Return the key of an entry of the expiry index."""
        return keys.due_key(due_ms, id, self.index)

    def open_key(self, id: str) -> bytes:
        """Return the key of an entry of the index of what is unsettled."""
        return self.unsettled + id.encode("ascii")

    def was_unsettled(self, id: str) -> bool:
        """Return whether the table has an id in the index of what is unsettled."""
        head = self.heads.get(id)
        return head.unsettled if head is not None else self._is_in_index(id)

    def prefix(self, id: str) -> bytes:
        """Return what the keys of all rows of an id begin with."""
        return self.room + id.encode("ascii")

    def head(self, id: str) -> H | None:
        """Return a head, None where there is none."""
        head = self.heads.get(id)
        if head is None:
            head = self.decode_head(self.partition.get(self.row_key(id, keys.HEAD)))
            if head is not None:
                self.remember(id, head)
        return head

    def remember(self, id: str, head: H | None) -> None:
        """Keep a head decoded, or forget it."""
        if head is None:
            self.heads.pop(id, None)
            return
        self.heads[id] = head
        self.heads.move_to_end(id)
        if len(self.heads) > HEADS_CACHED:
            self.on_eviction(self.heads.popitem(last=False)[0])

    def on_eviction(self, id: str) -> None:
        """Act on a head that is no longer kept decoded."""

    def unsettled_ids(self) -> Iterator[str]:
        """Yield the ids that are not settled, and those of which an erasure has left rows."""
        for key, _ in self.partition.scan(self.unsettled, above(self.unsettled)):
            yield key[1:].decode("ascii")

    def all_ids(self) -> Iterator[str]:
        """Yield every id that has a row; costs one seek an id."""
        following = 1 + keys.ID_LENGTH
        for key in self.partition.skip_scan(self.room, above(self.room), lambda key: above(key[:following])):
            yield key[1:following].decode("ascii")

    def build_index(self) -> Iterator[None]:
        """Put into the index what is missing in it, a look for each step; over when the iterator is.

        What an erasure has left is missing where the changelog got the end of the erasure alone, and everything is in
        a table of a version that had no index.
        """
        for id in self.all_ids():
            try:
                head = self.head(id)
            except RecordError:
                continue  # Told of when somebody asks for it.
            if (head is None or head.unsettled or self.is_erased(head)) and not self._is_in_index(id):
                self.partition.write({self.open_key(id): b""})
            yield
        self.partition.mark(keys.INDEXED + self.room)

    def _is_in_index(self, id: str) -> bool:
        return self.partition.get(self.open_key(id)) is not None

    def is_erased(self, head: H) -> bool:
        """Return whether a head is what an erasure has left."""
        return False

    @property
    def indexed(self) -> bool:
        """Whether this table was looked through since it was made from the changelog."""
        return self.partition.get(keys.INDEXED + self.room) is not None

    def audio(self, id: str, first: int, stop: int) -> list[AudioRow]:
        """Return where the chunks or parts [first, stop) are, up to the first that is missing."""
        unbroken = []
        lower, upper = (self.row_key(id, keys.AUDIO, number) for number in (first, stop))
        for expected, (key, value) in enumerate(self.partition.scan(lower, upper), first):
            row = rows.audio(value)
            if keys.number_of(key) != expected or row is None:
                break
            unbroken.append(row)
        return unbroken

    def tidy(self, id: str) -> bool:
        """Delete what an erasure has left of an id, a bounded number of rows; return True once nothing is left."""
        head, prefix = self.head(id), self.prefix(id)
        if head is not None and not self.is_erased(head):
            # It was not erased, or has come again. A changelog that ended early may have left it in the index.
            if not head.unsettled:
                self.partition.write({self.open_key(id): None})
            return True
        spared_keys = {self.row_key(id, keys.HEAD), *self.spared_keys(id, head)}
        limit = TIDIED_ROWS + len(spared_keys)
        found = [key for key, _ in self.partition.scan(prefix, above(prefix), limit)]
        leftovers = dict.fromkeys(key for key in found if key not in spared_keys)
        ended = len(found) < limit
        if ended and (head is None or not head.unsettled):
            leftovers[self.open_key(id)] = None
        if leftovers:
            self.partition.write(leftovers)
        return ended

    def due(self, now_ms: int, limit: int, after: tuple[int, str] | None = None) -> list[tuple[int, str]]:
        """Return (due time, id) of at most `limit` entries of the expiry index up to `now_ms`, oldest first.

        Those behind the entry `after` alone, which spares the table the deleted ones before it.
        """
        lower = self.index if after is None else self.due_key(*after) + b"\0"
        entries = self.partition.scan(lower, self.due_key(now_ms + 1, ""), limit)
        return [keys.parse_due(key) for key, _ in entries]
