"""Which offset may be committed."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

from faust.transport.consumer import Consumer as StockConsumer
from hypothesis import given
from hypothesis import strategies as st

from streams.driver.deliveries import Deliveries


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_the_committable_offset_is_the_lowest_one_in_work(sizes: list[int], data: st.DataObject) -> None:
    """Against a naive model: a set of offsets, and a walk from the first one."""
    deliveries, done = Deliveries(), set[int]()
    firsts, following = [], 10
    for size in sizes:
        firsts.append((following, following + size))
        deliveries.add(following, following + size)
        following += size
    for first, after in data.draw(st.permutations(firsts)):
        assert deliveries.finish(first, after)
        done.update(range(first, after))
        naive = next(offset for offset in range(10, following + 1) if offset not in done)
        assert deliveries.committable == (naive if naive > 10 else None)
    assert len(deliveries) == 0


def test_a_batch_that_is_not_known_counts_for_nothing() -> None:
    deliveries = Deliveries()
    deliveries.add(5, 8)
    assert not deliveries.finish(6, 8)
    assert deliveries.committable is None
    assert deliveries.finish(5, 8)
    assert not deliveries.finish(5, 8)
    assert deliveries.committable == 8


def test_a_delivery_from_before_a_seek_does_not_stand_for_a_longer_one() -> None:
    """[5, 8) was in work when the partition was sought back to 5; then [5, 10) was delivered."""
    deliveries = Deliveries()
    deliveries.add(5, 10)
    assert not deliveries.finish(5, 8)
    assert deliveries.committable is None
    assert deliveries.finish(5, 10)
    assert deliveries.committable == 10


def test_stock_faust_commits_above_a_record_in_work() -> None:
    """Record 0 is in work and 1 to 3 are acknowledged: stock commits 4, ours commits nothing."""
    acked = [1, 2, 3]
    consumer = SimpleNamespace(
        _acked={"tp": list(acked)},
        _gap=defaultdict(list),
        _committed_offset={"tp": None},
        _acked_index={"tp": {1, 2, 3}},
    )
    assert StockConsumer._new_offset(consumer, "tp") == 4
    deliveries = Deliveries()
    for offset in range(4):
        deliveries.add(offset, offset + 1)
    for offset in acked:
        deliveries.finish(offset, offset + 1)
    assert deliveries.committable is None
