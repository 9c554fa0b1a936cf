"""Rows of one partition: heads kept decoded, typed reading, and a draft that gathers the writes of one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from topics import keys, rows
from topics.rows import AudioRow

H = TypeVar("H", bound=msgspec.Struct)

HEADS_CACHED: Final = 4096


class Partition(Protocol):
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
    """The rows of things that have an id and a head, of one partition; heads of active ones are kept decoded."""

    #: What all keys of the kind begin with, and the prefix of its expiry index.
    kind: bytes
    index: bytes

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.heads: OrderedDict[str, H] = OrderedDict()

    @abstractmethod
    def head_key(self, name: str) -> bytes:
        """Return the key of a head."""

    @abstractmethod
    def decoded(self, value: bytes | None) -> H | None:
        """Read a head row, None where there is none."""

    def prefix(self, name: str) -> bytes:
        """Return what the keys of all rows of a name begin with."""
        return self.kind + name.encode("ascii")

    def head(self, name: str) -> H | None:
        """Return a head, None where there is none."""
        known = self.heads.get(name)
        if known is None:
            known = self.decoded(self.partition.get(self.head_key(name)))
            if known is not None:
                self.remember(name, known)
        return known

    def remember(self, name: str, head: H | None) -> None:
        """Keep a head decoded, or forget it."""
        if head is None:
            self.heads.pop(name, None)
            return
        self.heads[name] = head
        self.heads.move_to_end(name)
        if len(self.heads) > HEADS_CACHED:
            self.evicted(self.heads.popitem(last=False)[0])

    def evicted(self, name: str) -> None:
        """A head is no longer kept decoded."""

    def names(self) -> Iterator[tuple[str, H | None]]:
        """Yield every id of the partition with its head; skips from id to id.

        The head is None where only the head of something deleted reached the changelog as deleted before a crash.
        """
        lower, end = self.kind, above(self.kind)
        while (key := next((key for key, _ in self.partition.scan(lower, end, 1)), None)) is not None:
            name = key[1 : 1 + keys.ID_LENGTH].decode("ascii")
            yield name, self.head(name)
            lower = above(self.prefix(name))

    def unbroken(self, lower: bytes, upper: bytes) -> list[AudioRow]:
        """Return the references of lower <= key < upper up to the first number that is missing."""
        found = []
        for expected, (key, value) in enumerate(self.partition.scan(lower, upper), keys.number_of(lower)):
            row = rows.audio(value)
            if keys.number_of(key) != expected or row is None:
                break
            found.append(row)
        return found

    def erase(self, name: str) -> None:
        """Delete every row of an id at once."""
        draft = Draft(self)
        draft.erase(name)
        draft.keep()
        draft.apply()

    def due(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        """Return (due time, id) of entries of the expiry index up to `now_ms`, oldest first."""
        found = self.partition.scan(self.index, keys.due_key(now_ms + 1, "", self.index), limit)
        return [keys.parse_due(key) for key, _ in found]


class Draft(Generic[H]):
    """The writes of one batch: read through, dropped record by record on failure, applied at once at the end."""

    def __init__(self, store: HeadStore[H]) -> None:
        self.store = store
        self._changes: dict[bytes, bytes | None] = {}
        self._heads: dict[str, H | None] = {}
        self.begin()

    def begin(self) -> None:
        """Start a record; what an unfinished one wrote is forgotten."""
        self._record_changes: dict[bytes, bytes | None] = {}
        self._record_heads: dict[str, H | None] = {}

    def keep(self) -> None:
        """End a record: its writes belong to the batch."""
        self._changes.update(self._record_changes)
        self._heads.update(self._record_heads)
        self.begin()

    def head(self, name: str) -> H | None:
        """Return the head as the batch sees it."""
        for heads in (self._record_heads, self._heads):
            if name in heads:
                return heads[name]
        return self.store.head(name)

    def put_head(self, name: str, head: H) -> None:
        """Write a head; encoded once, at the end, however often the batch changes it."""
        self._record_heads[name] = head

    def get(self, key: bytes) -> bytes | None:
        """Return a value as the batch sees it."""
        for changes in (self._record_changes, self._changes):
            if key in changes:
                return changes[key]
        return self.store.partition.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self._record_changes[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a row; logged even when the row is not there, since an earlier deletion may not have been."""
        self._record_changes[key] = None

    def erase(self, name: str) -> None:
        """Delete every row of an id, those of this batch included."""
        prefix = self.store.prefix(name)
        written = [key for key in (*self._changes, *self._record_changes) if key.startswith(prefix)]
        stored = [key for key, _ in self.store.partition.scan(prefix, above(prefix))]
        for key in (*written, *stored, self.store.head_key(name)):
            self.delete(key)
        self._record_heads[name] = None

    def apply(self) -> None:
        """Write everything at once."""
        for name, head in self._heads.items():
            if head is not None:
                self._changes[self.store.head_key(name)] = rows.encode(head)
        if self._changes:
            self.store.partition.write(self._changes)
        for name, head in self._heads.items():
            self.store.remember(name, head)
