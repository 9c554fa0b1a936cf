"""Session rows: ranges, the cache of heads, and drafts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.folding import store as module
from streams.folding.draft import Draft
from streams.folding.store import HEADS_CACHED, HEADS_LEAST, above
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, drafting
from topics import keys, rows
from topics.rows import AudioRow
from topics.sessions.rows import Block
from topics.sessions.rules import SessionHead

ONE, TWO = "A" * 24, "B" * 24
HEAD = SessionHead("stream", None, touched=0, command=0, next=3)


def filled() -> tuple[MemoryPartition, SessionStore]:
    partition = MemoryPartition()
    store = SessionStore(partition)
    with drafting(store) as draft:
        for session in (ONE, TWO):
            draft.put_head(session, HEAD)
            for number in range(3):
                draft.put(
                    keys.row_key(keys.SESSION, session, keys.AUDIO, number), rows.encode(AudioRow(number, 1, b"d"))
                )
        draft.put(keys.due_key(5, ONE), b"")
        draft.put(keys.due_key(9, TWO), b"")
    return partition, store


@given(st.binary(min_size=1).filter(lambda prefix: prefix[-1] < 255), st.binary())
def test_nothing_with_a_prefix_lies_above_it(prefix: bytes, rest: bytes) -> None:
    assert prefix <= prefix + rest < above(prefix)


def test_chunks_stop_at_a_gap() -> None:
    partition, store = filled()
    assert [row.offset for row in store.audio(ONE, 0, 9)] == [0, 1, 2]
    del partition.rows[keys.row_key(keys.SESSION, ONE, keys.AUDIO, 1)]
    assert [row.offset for row in store.audio(ONE, 0, 9)] == [0]
    assert store.audio(ONE, 1, 9) == []


def test_sessions_are_walked_one_by_one() -> None:
    partition, store = filled()
    assert list(store.all_ids()) == [ONE, TWO]
    del partition.rows[keys.row_key(keys.SESSION, ONE, keys.HEAD)]
    store.heads.clear()
    assert [(session, store.head(session) is None) for session in store.all_ids()] == [(ONE, True), (TWO, False)]


def test_due_sessions_come_oldest_first_and_bounded() -> None:
    _, store = filled()
    assert store.due(4, 10) == []
    assert store.due(5, 10) == [(5, ONE)]
    assert store.due(9, 10) == [(5, ONE), (9, TWO)]
    assert store.due(9, 1) == [(5, ONE)]


def test_all_partitions_of_a_node_keep_so_many_heads_together() -> None:
    """Two stores of each partition kept 4,096 each, and there may be hundreds of partitions."""
    most = [SessionStore(MemoryPartition(0), partitions).heads_most for partitions in (1, 64, 100_000)]
    assert most == [HEADS_CACHED, HEADS_CACHED // 64, HEADS_LEAST]


def test_heads_are_kept_decoded_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADS_CACHED", 1)
    monkeypatch.setattr(module, "HEADS_LEAST", 1)
    _, store = filled()
    assert list(store.heads) == [TWO]
    assert store.head(ONE) == HEAD
    assert list(store.heads) == [ONE]


def test_an_erased_session_leaves_nothing_not_even_what_the_batch_had_written() -> None:
    partition, store = filled()
    draft = Draft(store)
    draft.put(keys.row_key(keys.SESSION, ONE, keys.RESULT, 0), rows.encode(Block("m", b"s")))
    draft.put_head(ONE, HEAD)
    draft.keep()
    draft.erase(ONE)
    assert draft.head(ONE) is None
    draft.keep()
    draft.apply()
    assert list(store.all_ids()) == list(store.unsettled_ids()) == [TWO]
    assert store.head(ONE) is None
    assert not [key for key in partition.rows if key.startswith(keys.row_prefix(keys.SESSION, ONE))]


def test_a_draft_reads_what_it_wrote_and_forgets_an_unfinished_record() -> None:
    partition, store = filled()
    draft = Draft(store)
    draft.put(b"kept", b"1")
    draft.keep()
    draft.put(b"kept", b"2")
    draft.delete(keys.row_key(keys.SESSION, ONE, keys.AUDIO, 0))
    assert draft.get(b"kept") == b"2"
    assert draft.get(keys.row_key(keys.SESSION, ONE, keys.AUDIO, 0)) is None
    draft.begin()
    assert draft.get(b"kept") == b"1"
    assert draft.get(keys.row_key(keys.SESSION, ONE, keys.AUDIO, 0)) is not None
    before = dict(partition.rows)
    assert b"kept" not in before
    draft.apply()
    assert partition.rows == {**before, b"kept": b"1"}


def test_an_empty_draft_writes_nothing() -> None:
    partition, store = filled()
    before = len(partition.changelog)
    Draft(store).apply()
    assert len(partition.changelog) == before
