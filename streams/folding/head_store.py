"""Typed access to the rows of one partition, with a cache of decoded heads."""

import heapq
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from streams.disk import DiskFull
from streams.folding import extents
from streams.folding.by_project import ByProject
from streams.folding.extents import ListExtents
from streams.folding.presence import Presence
from streams.folding.references import References
from topics import keys, rows
from topics.errors import RecordError
from topics.folding import AudioRow, Head, first_recent
from topics.ports.lists import ListQuery

H = TypeVar("H", bound=Head)

log = structlog.get_logger(__name__)

#: Decoded heads to cache: for all partitions of a node together, and the minimum for one partition.
HEADS_CACHED: Final = 65_536
HEADS_LEAST: Final = 256
#: Ids to remember that were set aside.
ASIDE_MOST: Final = 4096
#: Unsettled ids to read at a time.
PAGE_IDS: Final = 256
#: Rows of an id to delete at a time.
TIDIED_ROWS: Final = 1000


class PartitionTable(Protocol):
    """Access to the raw rows of one partition."""

    @property
    def number(self) -> int: ...

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most `limit` (key, value) pairs with lower <= key < upper, in order."""

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        """Yield the first key of [lower, upper), then the first key at or above `following(key)`, and so on."""

    def now_ms(self) -> int:
        """Return the log time."""

    def log_first(self, rows: Mapping[bytes, bytes], logged: Callable[[], None], head: bytes | None = None) -> None:
        """Log rows to the changelog, and call `logged` once it has them; `write` writes them to the table then.

        The row of the key `head` is logged before them, if it changed since it was.
        """

    def write_again(self, keys: Sequence[bytes], logged: Callable[[], None]) -> None:
        """Log rows of the table again, and call `logged` once the changelog has them."""

    def mark(self, key: bytes) -> None:
        """Write an empty row to this table only, not to the changelog."""

    def write(self, changes: Mapping[bytes, bytes | None], logged: Mapping[bytes, bytes] = ...) -> None:
        """Apply all changes at once (None deletes), and log those to the changelog that are not `logged`."""


class Listed(NamedTuple, Generic[H]):
    """An entry of a project's list, with its log time in ms and its rows."""

    time_ms: int
    id: str
    head: H
    request: bytes | None

    @property
    def place(self) -> tuple[int, str]:
        """The sort key for merging entries of several partitions: newest first, then by id."""
        return -self.time_ms, self.id


def above(prefix: bytes) -> bytes:
    """Return the smallest key above all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def audio_offsets(audio_rows: Iterable[bytes | None]) -> Iterator[int]:
    """Yield the log offsets of chunks or parts from their rows; leave out missing and unreadable rows."""
    for value in audio_rows:
        with suppress(RecordError):
            if (row := rows.audio(value)) is not None:
                yield row.offset


class HeadStore(ABC, Generic[H]):
    """Reads the rows of a partition's sessions or jobs, and caches the heads of active ones. Loop only.

    Only this class decodes heads and requests. Reading an unreadable row raises RecordError; `readable` lets background
    work skip its id.
    """

    #: The first bytes of keys (`topics.keys`): of rows, the expiry index, the index of unsettled ids, and the lists.
    space: bytes
    index: bytes
    unsettled: bytes
    listing: bytes
    #: The states with lists. A state's index here is part of its list's keys: add only at the end.
    listed_states: tuple[StrEnum, ...]
    #: Rows of chunks or parts that one record drops at most. A job has too few parts to need a limit.
    most_dropped = sys.maxsize

    def __init__(self, partition: PartitionTable, partitions: int = 16, presence: Presence | None = None) -> None:
        self.partition = partition
        self.presence = presence or Presence(partition)
        self.heads_most = max(HEADS_LEAST, HEADS_CACHED // partitions)
        self.heads: OrderedDict[str, H] = OrderedDict()
        #: Offsets of the command topic with audio that is still needed.
        self.references = References()
        #: Projects of the counted (`Head.counted`) ids, except uploads whose project is not known yet.
        self.projects = ByProject()
        self.extents = ListExtents()
        #: Deleted projects of which nothing is here or on its way here.
        self.empty_projects: set[str] = set()
        #: The last ids that were set aside, because a record of theirs could not be folded.
        self.aside: OrderedDict[str, None] = OrderedDict()
        #: Ids with an unreadable row that was reported.
        self._unreadable: set[str] = set()

    @abstractmethod
    def read_head(self, id: str) -> H | None:
        """Read a head from its rows."""

    def head_row(self, head: H) -> bytes:
        """Return the value of a head's row."""
        return rows.encode(head)

    def made(self, id: str) -> int:
        """Return the number of windows made in this process, also of those that no reader sees yet; 0 if unknown."""
        return 0

    def on_way(self, id: str) -> Iterable[bytes]:
        """Return the keys of rows that are on their way to the changelog, and not in the table."""
        return ()

    @abstractmethod
    def project(self, id: str) -> str | None:
        """Return the project of a session or job, or None if that is not known yet."""

    @abstractmethod
    def listed_as(self, head: H) -> tuple[StrEnum, int] | None:
        """Return the state and log time in ms (0 if the request has it) for the list entry of a head, or None."""

    @abstractmethod
    def origin(self, request: bytes | None) -> tuple[str, int] | None:
        """Return the project and log time in ms (0 if the head has it) from the row of a request, or None."""

    def spared_keys(self, id: str, rest: H | None) -> Collection[bytes]:
        """Return the keys of rows, besides the head, that survive an erasure with the head `rest`."""
        return ()

    def first_needed(self, head: H) -> int:
        """Return the number of the first chunk that may be needed; dropped rows may be left below it."""
        return 0

    def row_key(self, id: str, kind: bytes, number: int | None = None) -> bytes:
        return keys.row_key(self.space, id, kind, number)

    def due_key(self, due_ms: int, id: str) -> bytes:
        return keys.due_key(due_ms, id, self.index)

    def open_key(self, id: str) -> bytes:
        return self.unsettled + id.encode("ascii")

    def was_unsettled(self, id: str) -> bool:
        """Return whether an id is in the table's index of unsettled ids."""
        head = self.heads.get(id)
        return head.unsettled if head is not None else self.partition.get(self.open_key(id)) is not None

    def list_key(self, id: str, head: H | None, request: bytes | None) -> bytes | None:
        """Return the key of an id's entry in its project's list, or None if it is in no list."""
        listed = None if head is None else self.listed_as(head)
        origin = None if listed is None else self.origin(request)
        if listed is None or origin is None:
            return None
        state, time_ms = listed
        project, opened_ms = origin
        place = keys.list_place(time_ms or opened_ms, id)
        return keys.list_prefix(self.listing, project, self.listed_states.index(state)) + place

    def list_keys(self, key: bytes) -> list[bytes]:
        """Return the keys of a list entry in each state."""
        place = keys.place_of(key)
        before = key[: -len(place) - 1]
        return [before + bytes([number]) + place for number in range(len(self.listed_states))]

    def prefix(self, id: str) -> bytes:
        return self.space + id.encode("ascii")

    def head(self, id: str) -> H | None:
        head = self.heads.get(id)
        if head is None and (head := self.read_head(id)) is not None:
            self.remember(id, head)
        return head

    def peek(self, id: str) -> H | None:
        """Return a head like `head`, but do not cache it: the cache is for active ids."""
        head = self.heads.get(id)
        return head if head is not None else self.read_head(id)

    def remember(self, id: str, head: H | None) -> None:
        if head is None:
            self.heads.pop(id, None)
            return
        self.heads[id] = head
        self.heads.move_to_end(id)
        if len(self.heads) > self.heads_most:
            self.on_eviction(self.heads.popitem(last=False)[0])

    def on_eviction(self, id: str) -> None:
        """Handle the eviction of a head from the cache."""

    def readable(self, id: str) -> bool:
        """Return whether an id's head and request, if they exist, are readable; report once if not.

        Background work skips unreadable ids, because a newer version of the service may be able to read them.
        """
        try:
            self.peek(id)
            self.project(id)
        except RecordError as error:
            self._report(id, error)
            return False
        return True

    def set_aside(self, id: str, error: Exception) -> None:
        """Refuse commands on an id from now on; its rows stay as they are."""
        if id not in self.aside:
            log.warning("id.set_aside", id=keys.shown(id), partition=self.partition.number, cause=repr(error))
            self.aside[id] = None
            if len(self.aside) > ASIDE_MOST:
                self.aside.popitem(last=False)

    def takes_commands(self, id: str) -> bool:
        """Return whether commands on an id can be folded, as far as is known."""
        return id not in self.aside and (id in self.heads or self.readable(id))

    def _report(self, id: str, error: RecordError) -> None:
        if id not in self._unreadable:
            self._unreadable.add(id)
            log.warning("row.unreadable", id=keys.shown(id), partition=self.partition.number, cause=str(error))

    def unsettled_ids(self) -> Iterator[str]:
        """Yield the unsettled ids, and erased ids with remaining rows. Rows may change in between."""
        after, page = self.unsettled, [b""]
        while page:
            page = [key for key, _ in self.partition.scan(after, above(self.unsettled), PAGE_IDS)]
            for key in page:
                yield key[1:].decode("ascii")
                after = key + b"\0"

    def all_ids(self) -> Iterator[str]:
        """Yield every id that has a row, at the cost of one seek per id."""
        following = 1 + keys.ID_LENGTH
        for key in self.partition.skip_scan(self.space, above(self.space), lambda key: above(key[:following])):
            yield key[1:following].decode("ascii")

    def build_index(self) -> Iterator[None]:
        """Add missing entries to the index of unsettled ids, one id per step, until the iterator ends.

        Entries are missing if the changelog has only the end of an erasure.
        """
        for id in filter(self.readable, self.all_ids()):
            head = self.head(id)
            entry, is_due = self.open_key(id), head is None or head.unsettled or self.is_erased(head)
            if is_due and self.partition.get(entry) is None:
                self.partition.write({entry: b""})
            yield
        self.partition.mark(keys.INDEXED + self.space)

    def is_erased(self, head: H) -> bool:
        """Return whether a head is the remainder of an erasure."""
        return False

    @property
    def indexed(self) -> bool:
        """Whether this table was indexed since its rebuild from the changelog."""
        return self.partition.get(keys.INDEXED + self.space) is not None

    def listed(self, query: ListQuery) -> Iterator[Listed[H]]:
        """Yield a project's entries, newest first, at the cost of the entries taken and one seek per state.

        Delete entries left behind by a crash.
        """
        prefixes = [
            keys.list_prefix(self.listing, query.project, number)
            for number, state in enumerate(self.listed_states)
            if not query.states or state in query.states
        ]
        for key in heapq.merge(*(self._entries(prefix, query) for prefix in prefixes), key=keys.place_of):
            time_ms, id = keys.parse_list_place(key)
            try:
                head, request = self.peek(id), self.partition.get(self.row_key(id, keys.REQUEST))
                current = self.list_key(id, head, request)
            except RecordError as error:
                self._report(id, error)
                continue
            if head is not None and current == key:
                yield Listed(time_ms, id, head, request)
            else:
                with suppress(DiskFull):  # A later read deletes it.
                    self.partition.write({key: None})

    def _entries(self, prefix: bytes, query: ListQuery) -> Iterator[bytes]:
        lower = keys.list_place(query.until_ms - 1)
        if query.after is not None:
            lower = max(lower, keys.list_place(*query.after) + b"\0")
        upper = keys.list_place(query.since_ms - 1) if query.since_ms else extents.ALL[1]
        return self.extents.entries(self.partition.scan, prefix, lower, upper)

    def audio(self, id: str, first: int, stop: int) -> list[AudioRow]:
        """Return the references to the chunks or parts [first, stop), up to the first missing or unreadable one."""
        head = self.peek(id)
        if head is None or not head.recent:
            return self._audio_rows(id, first, stop)
        recent = first_recent(head)
        found = self._audio_rows(id, first, min(stop, recent)) if first < recent else []
        if first + len(found) >= recent:
            found += head.recent[first + len(found) - recent : max(0, stop - recent)]
        return found

    def _audio_rows(self, id: str, first: int, stop: int) -> list[AudioRow]:
        unbroken = []
        lower, upper = (self.row_key(id, keys.AUDIO, number) for number in (first, stop))
        # A scan costs five reads of a row, and a live stream mostly has one chunk.
        one = stop == first + 1
        found = [(lower, self.partition.get(lower))] if one else self.partition.scan(lower, upper)
        for expected, (key, value) in enumerate(found, first):
            try:
                row = rows.audio(value)
            except RecordError as error:
                self._report(id, error)
                break
            if keys.number_of(key) != expected or row is None:
                break
            unbroken.append(row)
        return unbroken

    def purge(
        self,
        id: str,
        release: Callable[["HeadStore[Any]", int], None] = lambda store, offset: store.references.discard(offset),
    ) -> bool:
        """Delete a bounded number of an id's unneeded rows, and `release` their audio; return True once none are left.

        These are all rows if it is erased. If not, or if it was created again, they are rows of dropped chunks.
        """
        head, lower = self.head(id), self.prefix(id)
        upper, spared_keys = above(lower), {self.row_key(id, keys.HEAD), *self.spared_keys(id, head)}
        if head is not None and not self.is_erased(head):
            lower, upper = (self.row_key(id, keys.AUDIO, number) for number in (0, self.first_needed(head)))
        limit = TIDIED_ROWS + len(spared_keys)
        found = [(key, value) for key, value in self.partition.scan(lower, upper, limit) if key not in spared_keys]
        leftovers = dict.fromkeys(key for key, _ in found)
        ended = len(found) < TIDIED_ROWS
        # A truncated changelog may have left a settled id in the index.
        if ended and (head is None or not head.unsettled):
            leftovers[self.open_key(id)] = None
        if leftovers:
            self.partition.write(leftovers)
        audio = self.row_key(id, keys.AUDIO)
        for offset in audio_offsets(value for key, value in found if key.startswith(audio)):
            release(self, offset)
        return ended

    def has_dropped_audio(self, id: str, head: H) -> bool:
        """Return whether rows of dropped chunks are left: the changelog may lack their deletion."""
        lower, upper = (self.row_key(id, keys.AUDIO, number) for number in (0, self.first_needed(head)))
        return any(True for _ in self.partition.scan(lower, upper, 1))

    @property
    def is_watching(self) -> bool:
        """Whether any id has a deadline."""
        return any(True for _ in self.partition.scan(self.index, above(self.index), 1))

    def due(self, now_ms: int, limit: int, after: tuple[int, str] | None = None) -> list[tuple[int, str]]:
        """Return (due time, id) of at most `limit` entries of the expiry index up to `now_ms`, oldest first.

        Start after the entry `after`, if given, to skip the deleted entries before it.
        """
        lower = self.index if after is None else self.due_key(*after) + b"\0"
        entries = self.partition.scan(lower, self.due_key(now_ms + 1, ""), limit)
        return [keys.parse_due(key) for key, _ in entries]
