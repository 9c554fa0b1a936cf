"""The biller: the ledger first, then the log; a ledger that is away holds nothing up and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from streams.folding import biller as shared
from streams.jobs.biller import JobBiller
from streams.jobs.store import JobStore
from tests.unit.streams.folding.books import Books
from tests.unit.streams.jobs.world import JOB, JobWorld, accepted
from tests.waiting import until
from topics import keys
from topics.errors import DirectoryDown, Unavailable
from topics.jobs.options import Options, Service
from topics.jobs.records import Billed, Finished, Part, Removed, Started
from topics.ports.ledger import Charge, MeteredService


def succeeded() -> JobWorld:
    """A job of two services of which one has succeeded."""
    world = JobWorld()
    world.command(Part("c", "a", 0, b"a"))
    world.command(accepted("a", 1, Options(sound_event_detection=True, speech_analysis=True)))
    world.fold_all()
    world.result(Started(Service.SOUND, "r"))
    world.result(Finished(Service.SOUND, "r", 0, audio_ms=2500, model="m@1"))
    world.fold_all()
    return world


async def billed(world: JobWorld, ledger: Books | None, faults: Sequence[Exception] = ()) -> list[str]:
    """Let the biller take the job; return what happened in which order."""
    happened: list[str] = []
    refusals = list(faults)

    async def emit(job: str, result: Billed) -> None:
        if refusals:
            raise refusals.pop(0)
        happened.append(f"{len(ledger.lines) if ledger else 0} lines")
        world.result(result)
        world.fold_all()

    biller = JobBiller(lambda job: world.store, ledger, emit)
    ended: list[asyncio.Task[None]] = []
    biller.start(ended.append)
    biller.enqueue("X" * 24)
    biller.enqueue(JOB)
    await until(lambda: world.head is None or not world.head.unbilled)
    await biller.stop()
    assert ended[0].cancelled()
    return happened


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LONGEST_PAUSE_SECONDS", 0.002)


LINE = Charge(JOB, MeteredService.SOUND, "p", "o", 2500, "m@1", 1_700_000_000_000)


async def test_what_succeeded_is_in_the_ledger_before_the_log_says_so() -> None:
    ledger, world = Books(), succeeded()
    assert await billed(world, ledger) == ["1 lines"]
    assert ledger.lines == [LINE]


@pytest.mark.parametrize("fault", [DirectoryDown("away"), Unavailable("away"), ValueError("a bug")])
async def test_a_ledger_that_fails_is_asked_again(fault: Exception) -> None:
    ledger, world = Books(fault, fault, fault), succeeded()
    assert await billed(world, ledger) == ["1 lines"]


async def test_a_log_that_does_not_take_it_is_told_again_and_the_ledger_too() -> None:
    ledger, world = Books(), succeeded()
    assert await billed(world, ledger, [Unavailable("full")]) == ["2 lines"]
    assert ledger.lines == [LINE, LINE]


async def test_a_removed_job_is_billed_and_then_forgotten_but_for_its_head() -> None:
    ledger, world = Books(), succeeded()
    world.command(Removed("c"))
    world.fold_all()
    assert world.store.accepted(JOB) is not None
    await billed(world, ledger)
    assert ledger.lines == [LINE]
    assert world.left() == {world.store.row_key(JOB, keys.HEAD)}


async def test_without_a_ledger_nothing_stays_unbilled() -> None:
    assert await billed(succeeded(), None) == ["0 lines"]


async def test_a_job_whose_partition_went_away_is_left_to_its_owner() -> None:
    asked: list[str] = []

    def gone(job: str) -> JobStore:
        asked.append(job)
        raise Unavailable("elsewhere")

    ledger = Books()

    async def emit(job: str, result: Billed) -> None:
        raise AssertionError(result)

    biller = JobBiller(gone, ledger, emit)
    biller.start(lambda task: None)
    biller.enqueue(JOB)
    await asyncio.sleep(0.01)
    await biller.stop()
    assert asked == [JOB]
    assert ledger.lines == []
