"""Rows of a partition: ranges, the cache of heads, drafts, erasure in steps, and the extents of lists."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.folding import head_store as store_module
from streams.folding.draft import ERASED_ROWS, Draft
from streams.folding.extents import ALL, ListExtents
from streams.folding.head_store import HEADS_CACHED, HEADS_LEAST, TIDIED_ROWS, above
from streams.sessions.store import SessionStore
from streams.tables.partition_rows import NO_ROWS
from tests.unit.streams.sessions.rows import MemoryPartition, drafting
from topics import keys, rows
from topics.folding import AudioRow
from topics.sessions.rows import Block
from topics.sessions.rules import SessionHead, SessionState

ONE, TWO = "A" * 24, "B" * 24
HEAD = SessionHead("stream", None, touched=0, command=0, next=3)


def audio_key(number: int, session: str = ONE) -> bytes:
    return keys.row_key(keys.SESSION, session, keys.AUDIO, number)


def filled() -> tuple[MemoryPartition, SessionStore]:
    partition = MemoryPartition()
    store = SessionStore(partition)
    with drafting(store) as draft:
        for session in (ONE, TWO):
            draft.put_head(session, HEAD)
            for number in range(3):
                draft.put(audio_key(number, session), rows.encode(AudioRow(number, 1, b"d")))
    return partition, store


@given(st.binary(min_size=1).filter(lambda prefix: prefix[-1] < 255), st.binary())
def test_above_bounds_all_keys_with_prefix(prefix: bytes, rest: bytes) -> None:
    assert prefix <= prefix + rest < above(prefix)


def test_audio_scan_stops_at_gap() -> None:
    partition, store = filled()
    assert [row.offset for row in store.audio(ONE, 0, 9)] == [0, 1, 2]
    del partition.rows[audio_key(1)]
    assert [row.offset for row in store.audio(ONE, 0, 9)] == [0]
    assert store.audio(ONE, 1, 9) == []


def test_all_ids_includes_sessions_without_head() -> None:
    partition, store = filled()
    assert list(store.all_ids()) == [ONE, TWO]
    del partition.rows[keys.row_key(keys.SESSION, ONE, keys.HEAD)]
    store.heads.clear()
    assert [(session, store.head(session) is None) for session in store.all_ids()] == [(ONE, True), (TWO, False)]


def test_cached_heads_are_bounded_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    most = [SessionStore(MemoryPartition(0), partitions).heads_most for partitions in (1, 64, 100_000)]
    assert most == [HEADS_CACHED, HEADS_CACHED // 64, HEADS_LEAST]
    monkeypatch.setattr(store_module, "HEADS_CACHED", 1)
    monkeypatch.setattr(store_module, "HEADS_LEAST", 1)
    _, store = filled()
    assert list(store.heads) == [TWO]
    assert store.head(ONE) == HEAD
    assert list(store.heads) == [ONE]


def test_draft_reads_its_writes_and_discards_unfinished_record() -> None:
    partition, store = filled()
    draft = Draft(store)
    draft.put(b"kept", b"1")
    draft.keep()
    draft.put(b"kept", b"2")
    draft.delete(audio_key(0))
    assert draft.get(b"kept") == b"2"
    assert draft.get(audio_key(0)) is None
    draft.begin()
    assert draft.get(b"kept") == b"1"
    assert draft.get(audio_key(0)) is not None
    before, written = dict(partition.rows), len(partition.changelog)
    assert b"kept" not in before
    Draft(store).apply()
    assert len(partition.changelog) == written, "an empty draft writes nothing"
    draft.apply()
    assert partition.rows == {**before, b"kept": b"1"}


# --- long sessions are erased in bounded steps, which the next owner resumes after a crash --------------------------

LIVE = SessionHead("stream", None, touched=0, command=0)
FINISHED = SessionHead("stream", None, 0, 0, SessionState.READONLY, finished=True, error="damaged")


class House:
    """A partition with two sessions of many rows; records the rows of each write."""

    def __init__(self, head: SessionHead, blocks: int) -> None:
        self.partition = MemoryPartition()
        self.writes: list[int] = []
        write = self.partition.write

        def noted(changes: Mapping[bytes, bytes | None], logged: Mapping[bytes, bytes] = NO_ROWS) -> None:
            self.writes.append(len(changes))
            write(changes, logged)

        self.partition.write = noted  # type: ignore[method-assign]
        self.store = SessionStore(self.partition)
        for session in (ONE, TWO):
            with drafting(self.store) as draft:
                draft.put_head(session, head)
                for number in range(blocks):
                    draft.put(keys.row_key(keys.SESSION, session, keys.RESULT, number), rows.encode(Block("m", b"s")))
        self.writes.clear()

    def erase(self) -> bool:
        draft = Draft(self.store)
        ended = draft.erase(ONE)
        draft.keep()
        draft.apply()
        return ended

    def left(self, session: str = ONE) -> int:
        prefix = keys.row_key(keys.SESSION, session, b"")
        return sum(key.startswith(prefix) for key in self.partition.rows)

    def tidy_up(self) -> int:
        """Finish the erasures as the next owner does; return the number of steps."""
        steps = 0
        for session in list(self.store.unsettled_ids()):
            if self.store.head(session) is None:
                steps += 1
                while not self.store.purge(session):
                    steps += 1
        return steps


@pytest.mark.parametrize("head", [LIVE, FINISHED], ids=["live", "finished"])
def test_long_session_is_hidden_then_erased_in_steps(head: SessionHead) -> None:
    house = House(head, blocks=2 * ERASED_ROWS + 500)
    assert not house.erase()
    assert house.store.head(ONE) is None
    assert house.partition.get(keys.row_key(keys.SESSION, ONE, keys.HEAD)) is None
    assert ONE in list(house.store.unsettled_ids())
    assert house.left() == ERASED_ROWS + 501
    assert house.tidy_up() == 2
    assert house.left() == 0
    assert list(house.store.unsettled_ids()) == ([TWO] if head is LIVE else [])
    assert house.left(TWO) == 2 * ERASED_ROWS + 501
    assert max(house.writes) <= max(ERASED_ROWS, TIDIED_ROWS) + 2


def test_short_session_is_erased_in_one_batch() -> None:
    house = House(LIVE, blocks=3)
    draft = Draft(house.store)
    draft.put(audio_key(7), b"")
    draft.put_head(ONE, LIVE)
    draft.keep()
    draft.put(audio_key(8), b"")
    assert draft.erase(ONE)
    assert draft.head(ONE) is None
    draft.keep()
    draft.apply()
    assert (house.left(), len(house.writes), house.store.head(ONE)) == (0, 1, None)
    assert list(house.store.all_ids()) == list(house.store.unsettled_ids()) == [TWO]


# --- extents of lists: existing entries are always found, and deleted ranges are not scanned ------------------------

PREFIX = keys.list_prefix(keys.JOB_LIST, "p", 1)
TIMES = st.integers(1, 9)
KINDS = st.sampled_from(["put", "delete", "read", "read a part", "read all"])
STEPS = st.lists(st.tuples(KINDS, TIMES, TIMES), max_size=40)


class Rows:
    """Keys in order, and the scanned ranges."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.scanned: list[tuple[bytes, bytes]] = []

    def scan(self, lower: bytes, upper: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.scanned.append((lower, upper))
        yield from ((key, b"") for key in sorted(self.keys) if lower <= key < upper)


def key_at(time: int) -> bytes:
    return PREFIX + keys.list_place(time, "A" * keys.ID_LENGTH)


@given(STEPS)
def test_list_entries_match_written_keys(steps: list[tuple[str, int, int]]) -> None:
    rows, extents = Rows(), ListExtents()
    for what, one, other in steps:
        if what == "put":
            rows.keys.add(key_at(one))
            extents.note(key_at(one))
        elif what == "delete":
            rows.keys.discard(key_at(one))
        else:
            lower, upper = ALL if what == "read all" else (keys.list_place(one), keys.list_place(min(one, other) - 1))
            expected = sorted(key for key in rows.keys if PREFIX + lower <= key < PREFIX + upper)
            entries = extents.entries(rows.scan, PREFIX, lower, upper)
            if what == "read a part":
                assert next(entries, None) == (expected[0] if expected else None)
            else:
                assert list(entries) == expected


def test_deleted_ranges_are_not_scanned_again() -> None:
    rows, extents = Rows(), ListExtents()
    for _ in range(2):
        assert list(extents.entries(rows.scan, PREFIX, *ALL)) == []
    assert len(rows.scanned) == 1
    rows.keys.add(key_at(5))
    extents.note(key_at(5))
    assert list(extents.entries(rows.scan, PREFIX, *ALL)) == [key_at(5)]
    assert rows.scanned[-1] == (key_at(5), key_at(5) + b"\0")
