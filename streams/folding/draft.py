"""The pending writes of one batch."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Generic

import msgspec

from streams.folding.head_store import H, HeadStore, above, audio_offsets
from topics import keys, rows
from topics.errors import RecordError
from topics.folding import Arrival
from topics.jobs.records import Accepted
from topics.sessions.records import Opened

#: The most rows that one erasure deletes; the rest follows later.
ERASED_ROWS: Final = 1000


class Draft(Generic[H]):
    """Collects the writes of one batch, discards those of failed records, and applies the rest at once. Loop only."""

    def __init__(self, store: HeadStore[H]) -> None:
        self.store = store
        self._changes: dict[bytes, bytes | None] = {}
        self._heads: dict[str, H | None] = {}
        #: The projects of ids created in the batch.
        self._projects: dict[str, str] = {}
        #: Ids whose rows are rewritten, because their commands were folded before.
        self._again: set[str] = set()
        #: Ids with rows left for `HeadStore.purge`.
        self._leftovers: set[str] = set()
        #: Offsets of audio that is no longer needed once the draft is written.
        self.released: list[int] = []
        #: Rows that the changelog has, and the ids of their heads, whose own rows do not change.
        self._logged: dict[bytes, bytes] = {}
        self._grown: set[str] = set()
        #: What to do in memory once the draft is written: a record that is parked leaves nothing there.
        self._after: list[Callable[[], None]] = []
        self.begin()

    @property
    def size(self) -> int:
        """The number of rows that the batch changes so far."""
        return len(self._changes)

    def begin(self) -> None:
        """Start a record; discard the writes of an unfinished one."""
        self._record_changes: dict[bytes, bytes | None] = {}
        self._record_heads: dict[str, H | None] = {}
        self._record_projects: dict[str, str] = {}
        self._record_released: list[int] = []
        self._record_after: list[Callable[[], None]] = []

    def keep(self) -> None:
        """End a record, and add its writes to the batch."""
        self._changes.update(self._record_changes)
        self._heads.update(self._record_heads)
        self._projects.update(self._record_projects)
        self.released += self._record_released
        self._after += self._record_after
        self.begin()

    def head(self, id: str) -> H | None:
        for heads in (self._record_heads, self._heads):
            if id in heads:
                return heads[id]
        return self.store.head(id)

    def put_head(self, id: str, head: H, again: bool = False) -> None:
        """Write a head, encoded once, at the end. `again` if the changelog may lack rows of the id."""
        self._record_heads[id] = head
        if again:
            self._again.add(id)

    def show(self, id: str, head: H, logged: Mapping[bytes, bytes]) -> None:
        """Write rows that the changelog has, and which `head` shows. Such a draft folds no records."""
        self._record_heads[id] = head
        self._logged.update(logged)
        self._grown.add(id)

    def put_request(self, id: str, request: Opened | Accepted, arrival: Arrival) -> None:
        """Write the row of the record that opened a session, with its log time, or completed a job's upload."""
        if isinstance(request, Opened):
            request = msgspec.structs.replace(request, at=arrival.at)
        self.put_request_row(id, request)

    def put_request_row(self, id: str, request: Opened | Accepted) -> None:
        self.put(self.store.row_key(id, keys.REQUEST), rows.encode(request))
        self._record_projects[id] = request.project

    def get(self, key: bytes) -> bytes | None:
        for changes in (self._record_changes, self._changes):
            if key in changes:
                return changes[key]
        return self.store.partition.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._record_changes[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a row; log it even if the row does not exist, because an earlier deletion may not be logged."""
        self._record_changes[key] = None

    def release(self, offset: int) -> None:
        """Release the audio at an offset once the draft is written."""
        self._record_released.append(offset)

    def after(self, act: Callable[[], None]) -> None:
        """Do something once the draft is written, and before its audio is released; it must not raise."""
        self._record_after.append(act)

    def leave(self, id: str) -> None:
        """Note that an id has rows left for `HeadStore.purge`; until then it stays in the index of unsettled ids."""
        self._leftovers.add(id)

    def erase(self, id: str, rest: H | None = None) -> bool:
        """Delete all rows of an id, including those of this batch, except those kept with the head `rest`.

        Release their audio. Return False if unread rows are left for `HeadStore.purge`, which deletes them some at a
        time.
        """
        prefix = self.store.prefix(id)
        spared_rows = [(key, value) for key in self.store.spared_keys(id, rest) if (value := self.get(key)) is not None]
        batch_keys = [key for key in (*self._changes, *self._record_changes) if key.startswith(prefix)]
        table_keys = [key for key, _ in self.store.partition.scan(prefix, above(prefix), ERASED_ROWS)]
        erased_keys = dict.fromkeys(
            (*batch_keys, *table_keys, *self.store.on_way(id), self.store.row_key(id, keys.HEAD))
        )
        audio = self.store.row_key(id, keys.AUDIO)
        for offset in audio_offsets(self.get(key) for key in erased_keys if key.startswith(audio)):
            self.release(offset)
        for key in erased_keys:
            self.delete(key)
        self._record_changes.update(spared_rows)
        self._record_heads[id] = rest
        if len(table_keys) < ERASED_ROWS:
            return True
        self.leave(id)
        return False

    def mark_index_stale(self) -> None:
        """Make the next takeover search the whole table.

        For an id erased earlier from this table: the changelog may still have rows of it, and this table no longer
        knows which.
        """
        self.delete(keys.INDEXED + self.store.space)

    def apply(self) -> None:
        """Write everything at once; raise DiskFull, with nothing written, if the table's disk is full."""
        settled: list[bytes] = []
        entries: dict[bytes, bytes | None] = {}
        for id, head in self._heads.items():
            with suppress(RecordError):  # Readers of an unreadable row get the error.
                entries.update(self._entries(id, head))
            if head is not None and id not in self._grown:
                # After the rows of the same records, so that a truncated changelog never has a head without them.
                key = self.store.row_key(id, keys.HEAD)
                self._changes.pop(key, None)
                self._changes[key] = self.store.head_row(head)
            unsettled = id in self._leftovers or (head is not None and head.unsettled)
            if unsettled and (id in self._again or not self.store.was_unsettled(id)):
                self._changes[self.store.open_key(id)] = b""
            elif not unsettled and (id in self._again or self.store.was_unsettled(id)):
                settled.append(self.store.open_key(id))
        # List entries first: a head without an entry is in no list, while an entry without a head is ignored. Settled
        # ids last: while an id is in the index, remains of its erasure are found after a crash.
        changes = {**entries, **self._changes, **dict.fromkeys(settled)} if entries or settled else self._changes
        if changes or self._logged:
            self.store.partition.write(changes, self._logged)
        for entry, value in entries.items():
            if value is not None:
                self.store.extents.note(entry)
        for id, project in self._projects.items():
            self.store.projects.add(id, project)
            self.store.on_eviction(id)
        for id, head in self._heads.items():
            self.store.remember(id, head)
            if head is None or not head.counted:
                self.store.projects.discard(id)
        for act in self._after:
            act()

    def _entries(self, id: str, head: H | None) -> dict[bytes, bytes | None]:
        """Return the changes that move an id's list entry to its current state.

        If the changelog is behind the table, it may have another entry, so that one is deleted too.
        """
        store, again = self.store, id in self._again
        before = store.head(id)
        listed, old_listed = (None if one is None else store.listed_as(one) for one in (head, before))
        if listed == old_listed and not again:
            return {}
        request = store.row_key(id, keys.REQUEST)
        old = None if old_listed is None else store.list_key(id, before, store.partition.get(request))
        new = None if listed is None else store.list_key(id, head, self.get(request))
        stale = {old, *(store.list_keys(new) if again and new is not None else ())} - {new, None}
        return {**({} if new is None else {new: b""}), **{key: None for key in stale if key is not None}}
