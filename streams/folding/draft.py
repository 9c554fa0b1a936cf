"""The writes of one batch, before they are written."""

from __future__ import annotations

from typing import Generic

from streams.folding.store import H, HeadStore, above
from topics import keys, rows


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

    def head(self, id: str) -> H | None:
        """Return the head as the batch sees it."""
        for heads in (self._record_heads, self._heads):
            if id in heads:
                return heads[id]
        return self.store.head(id)

    def put_head(self, id: str, head: H) -> None:
        """Write a head; encoded once, at the end, however often the batch changes it."""
        self._record_heads[id] = head

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

    def erase(self, id: str, rest: H | None = None) -> None:
        """Delete every row of an id, those of this batch included, but for what stays with the head `rest`."""
        prefix = self.store.prefix(id)
        spared_rows = [(key, value) for key in self.store.spared_keys(id, rest) if (value := self.get(key)) is not None]
        batch_keys = [key for key in (*self._changes, *self._record_changes) if key.startswith(prefix)]
        table_keys = [key for key, _ in self.store.partition.scan(prefix, above(prefix))]
        for key in (*batch_keys, *table_keys, self.store.row_key(id, keys.HEAD)):
            self.delete(key)
        self._record_changes.update(spared_rows)
        self._record_heads[id] = rest

    def apply(self) -> None:
        """Write everything at once."""
        for id, head in self._heads.items():
            if head is not None:
                self._changes[self.store.row_key(id, keys.HEAD)] = rows.encode(head)
        if self._changes:
            self.store.partition.write(self._changes)
        for id, head in self._heads.items():
            self.store.remember(id, head)
