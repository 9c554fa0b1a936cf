"""The rows of one partition, read with their types; heads are kept decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from topics import keys, rows
from topics.folding import Head
from topics.rows import AudioRow

H = TypeVar("H", bound=Head)

HEADS_CACHED: Final = 4096


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

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply all changes at once (None deletes), and log them to the changelog."""
        ...


def above(prefix: bytes) -> bytes:
    """Return the smallest key above all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class HeadStore(ABC, Generic[H]):
    """The rows of the sessions, or of the jobs, of one partition; heads of active ones are kept decoded."""

    #: What all their keys begin with (`topics.keys`), and those of their expiry index.
    room: bytes
    index: bytes

    def __init__(self, partition: PartitionTable) -> None:
        self.partition = partition
        self.heads: OrderedDict[str, H] = OrderedDict()

    @abstractmethod
    def decode_head(self, value: bytes | None) -> H | None:
        """Read a head row, None where there is none."""

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

    def all_heads(self) -> Iterator[tuple[str, H | None]]:
        """Yield every id of the partition with its head; skips from id to id.

        The head is None where only the deletion of the head reached the changelog before a crash.
        """
        lower, end = self.room, above(self.room)
        while (key := next((key for key, _ in self.partition.scan(lower, end, 1)), None)) is not None:
            id = key[1 : 1 + keys.ID_LENGTH].decode("ascii")
            yield id, self.head(id)
            lower = above(self.prefix(id))

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

    def tidy(self, id: str, head: H | None) -> None:
        """Delete what an erased id has left: only its head may have reached the changelog before a crash."""
        prefix = self.prefix(id)
        spared_keys = {self.row_key(id, keys.HEAD), *self.spared_keys(id, head)}
        leftovers = [key for key, _ in self.partition.scan(prefix, above(prefix)) if key not in spared_keys]
        if leftovers:
            self.partition.write(dict.fromkeys(leftovers))

    def due(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        """Return (due time, id) of entries of the expiry index up to `now_ms`, oldest first."""
        entries = self.partition.scan(self.index, self.due_key(now_ms + 1, ""), limit)
        return [keys.parse_due(key) for key, _ in entries]
