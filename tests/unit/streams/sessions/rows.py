"""Doubles below the agents: a partition in a dict with its changelog, and records as a log delivers them."""

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from streams.folding.batch import Park, fold_batch, fold_patiently
from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.folding.head_store import H, HeadStore
from streams.log import StoredRecord
from streams.tables.partition_rows import NO_ROWS
from topics import record_codec
from topics.records import Record

T = TypeVar("T")


def delivered(offset: int, session: str, record: Record, at: int = 0) -> StoredRecord:
    return StoredRecord(offset, at, session.encode(), record_codec.encode(record))


class MemoryPartition:
    """Rows in a dict; every write reaches first the dict and then the changelog, as in the real table."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.rows: dict[bytes, bytes] = {}
        self.changelog: list[tuple[bytes, bytes | None]] = []
        #: What waits until the changelog is durable.
        self.waiting: list[Callable[[], None]] = []
        #: Whether nothing has to wait.
        self.is_prompt = False
        #: The log time (ms).
        self.at = 0

    def now_ms(self) -> int:
        return self.at

    def log_first(
        self, rows: Mapping[bytes, bytes | None], logged: Callable[[], None], head: bytes | None = None
    ) -> None:
        self.changelog.extend(rows.items())
        self.waiting.append(logged)
        if self.is_prompt:
            self.sync()

    def write_again(self, keys: Sequence[bytes], logged: Callable[[], None]) -> None:
        self.log_first({key: self.rows.get(key) for key in keys}, logged)

    def sync(self) -> None:
        """Make the changelog durable."""
        waiting, self.waiting = self.waiting, []
        for logged in waiting:
            logged()

    def mark(self, key: bytes) -> None:
        self.rows[key] = b""

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, lower: bytes, upper: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        found = sorted(key for key in self.rows if lower <= key < upper)
        return iter([(key, self.rows[key]) for key in found[:limit]])

    def skip_scan(self, lower: bytes, upper: bytes, following: Callable[[bytes], bytes]) -> Iterator[bytes]:
        found = sorted(key for key in self.rows if lower <= key < upper)
        at = 0
        while at < len(found):
            yield found[at]
            at = bisect_left(found, following(found[at]))

    def write(self, changes: Mapping[bytes, bytes | None], logged: Mapping[bytes, bytes] = NO_ROWS) -> None:
        replay(self.rows, [*logged.items(), *changes.items()])
        self.changelog.extend(changes.items())


def replay(rows: dict[bytes, bytes], changes: list[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Apply a changelog to rows."""
    for key, value in changes:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


@contextmanager
def drafting(store: HeadStore[H]) -> Iterator[Draft[H]]:
    """Write rows as one record is folded."""
    draft = Draft(store)
    yield draft
    draft.keep()
    draft.apply()


async def fold(store: HeadStore[H], records: Sequence[StoredRecord], agent: Fold[H], park: Park) -> None:
    """Fold records as a consumer does: together, and failing ones with retries."""
    while records:
        records = records[fold_batch(store, records, agent) :]
        if records:
            await fold_patiently(store, records[0], agent, park)
            records = records[1:]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the coroutine waits for something")
