"""Counts of several processes, and what each publishes."""

import os

import pytest

from app.http.holder_quota import HolderQuota, Places
from infra.transport.tallies import LANE_BYTES, LaneTallies
from topics.errors import Unavailable
from topics.tally import Published
from topics.turns import Holder


@pytest.fixture
def lanes() -> list[LaneTallies]:
    memory = os.memfd_create("tallies")
    os.ftruncate(memory, 3 * LANE_BYTES)
    return [LaneTallies(memory, 3, number) for number in range(3)]


def test_each_lane_sees_what_all_have(lanes: list[LaneTallies]) -> None:
    uploads = [lane("uploads") for lane in lanes]
    for number, tally in enumerate(uploads, 1):
        tally.add(("o", "p"), number)
    assert [tally.total(("o", "p")) for tally in uploads] == [6, 6, 6]
    assert lanes[0]("sockets").total(("o", "p")) == uploads[0].total(("o",)) == 0
    uploads[0].add(("o", "p"), -1)
    lanes[2].clear()
    assert uploads[1].total(("o", "p")) == 2


def test_quota_shows_its_own_places_and_bounds_those_of_all(lanes: list[LaneTallies]) -> None:
    places, holder = Places(2, "full"), Holder("o", "p")
    here, there = (HolderQuota(places, places, places, 1, lane("uploads")) for lane in lanes[:2])
    here.take(holder)
    there.take(holder)
    with pytest.raises(Unavailable, match="full"):
        here.take(holder)
    assert (here.used, there.used) == (1, 1)


def test_names_that_meet_are_never_counted_too_low(lanes: list[LaneTallies]) -> None:
    tally = lanes[0]("uploads")
    for name in range(3000):
        tally.add((str(name),), 1)
    totals = [tally.total((str(name),)) for name in range(3000)]
    assert min(totals) == 1
    assert sum(total > 1 for total in totals) < 60


def test_published_counts_of_others_bound_this_one(lanes: list[LaneTallies]) -> None:
    here, there = Published(lanes[0]("jobs")), Published(lanes[1]("jobs"))
    here.publish("p", 3)
    there.publish("p", 2)
    assert (here.others("p"), there.others("p")) == (2, 3)
    here.refresh(lambda _: 0)
    assert (here.others("p"), there.others("p")) == (2, 0)


def test_process_alone_publishes_nothing() -> None:
    alone = Published(None)
    alone.publish("p", 3)
    assert alone.others("p") == 0
    alone.refresh(lambda name: pytest.fail("it counts for nobody"))
