"""What the changelog missed in a crash is written again when the log is read again, although the local rows have it."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.streams.jobs.world import JOB, KEEP_MS, JobWorld, accepted
from topics import keys
from topics.jobs.options import Service
from topics.jobs.records import Billed, Finished, Overdue, Part, Portion, Removed, Started
from topics.jobs.rules import EntryState, JobState


def accepted_job() -> JobWorld:
    """All that a job needs to run, committed."""
    world = JobWorld()
    world.command(Part("c", "a", 0, b"one"))
    world.command(accepted("a", 1))
    world.fold_all()
    world.commit()
    return world


def lose_the_changelog(world: JobWorld) -> None:
    world.crash(0.0, local=True, order=Random(0))


def lose_the_rows(world: JobWorld) -> None:
    world.commit()
    world.crash(1.0, local=False, order=Random(0))


def test_parts_and_acceptance() -> None:
    world = JobWorld()
    world.command(Part("c", "a", 0, b"one"))
    world.command(accepted("a", 1))
    world.fold_all()
    lose_the_changelog(world)
    lose_the_rows(world)
    assert world.there.state is JobState.ACCEPTED
    assert world.store.accepted(JOB) == accepted("a", 1)
    assert [row.offset for row in world.store.audio(JOB, 0, 1)] == [0]
    assert {due for due, _ in world.store.due(2**60, 9)} >= {world.there.due(KEEP_MS)}


def test_the_end_of_a_service() -> None:
    world = accepted_job()
    for result in (
        Started(Service.SOUND, "r"),
        Portion(Service.SOUND, "r", 0, b"found"),
        Finished(Service.SOUND, "r", 1),
    ):
        world.result(result)
    world.fold_all()
    lose_the_changelog(world)
    assert [list(news.unbilled) for news in world.announced][-1] == [JOB]
    lose_the_rows(world)
    [entry] = world.there.entries
    assert (entry.state, entry.portions) == (EntryState.SUCCESS, 1)
    assert world.store.portion(JOB, Service.SOUND, 0) == b"found"
    assert world.store.audio(JOB, 0, 1) == []


def test_a_removal_and_what_it_removed() -> None:
    world = accepted_job()
    world.command(Removed("c"))
    world.fold_all()
    lose_the_changelog(world)
    lose_the_rows(world)
    assert world.there.state is JobState.REMOVED
    assert world.left() == {world.store.row_key(JOB, keys.HEAD)}


def test_a_removal_of_what_is_not_billed_yet() -> None:
    world = accepted_job()
    world.result(Started(Service.SOUND, "r"))
    world.result(Portion(Service.SOUND, "r", 0, b"found"))
    world.result(Finished(Service.SOUND, "r", 1))
    world.fold_all()
    world.commit()
    world.command(Removed("c"))
    world.fold_all()
    lose_the_changelog(world)
    lose_the_rows(world)
    assert world.there.unbilled
    assert world.left() == {world.store.row_key(JOB, kind) for kind in (keys.HEAD, keys.REQUEST)}


def test_a_job_that_was_kept_for_its_bill_is_not_judged_again() -> None:
    world = accepted_job()
    world.result(Started(Service.SOUND, "r"))
    world.result(Finished(Service.SOUND, "r", 0))
    world.fold_all()
    world.now += KEEP_MS + 1
    world.command(Overdue("sweep", KEEP_MS, 1))
    world.fold_all()
    world.result(Billed((Service.SOUND,)))
    world.fold_all()
    lose_the_changelog(world)
    assert world.there.state is JobState.COMPLETED


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("cut", range(12))
def test_a_completed_job_that_was_removed_leaves_nothing_wherever_the_changelog_was_cut(
    cut: int, standby: bool
) -> None:
    world = accepted_job()
    world.result(Started(Service.SOUND, "r"))
    for number in range(3):
        world.result(Portion(Service.SOUND, "r", number, b"found"))
    world.result(Finished(Service.SOUND, "r", 3))
    world.result(Billed((Service.SOUND,)))
    world.fold_all()
    world.commit()
    assert list(world.store.unsettled_ids()) == []
    world.command(Removed("c"))
    world.fold_all()
    deletions = len(world.partition.changelog) - world.flushed
    world.crash((cut + 0.5) / deletions if cut < deletions else 1.0, local=False, order=Random(0), standby=standby)
    assert world.there.state is JobState.REMOVED
    assert world.left() == {world.store.row_key(JOB, keys.HEAD)}
