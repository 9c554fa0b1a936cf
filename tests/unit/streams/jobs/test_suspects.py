"""Services of jobs that ran when a process died: the log counts their runs, and three without an end fail them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streams.folding.lives import Lives
from streams.services.service import ServiceRun
from tests.unit.streams.jobs.desk import Desk, ScriptedService, name
from tests.waiting import until
from topics.errors import Unavailable
from topics.folding import DEADLY, DEATHS, KILLED, KILLS
from topics.jobs.options import Service
from topics.jobs.records import Started, Stopped
from topics.jobs.rules import EntryState

ONE, TWO, THREE = name(1), name(2), name(3)


def times(desk: Desk, job: str) -> list[int]:
    return [result.times for result in desk.of(Started, job) if isinstance(result, Started)]


def died(desk: Desk, job: str, runs: int) -> None:
    """Fold what processes that died have left: runs without an end."""
    for run in range(1, runs + 1):
        desk.note(job, Started(Service.SOUND, f"r{run}", run))


async def hanging(work: ServiceRun) -> None:
    await asyncio.Event().wait()


def start_anew(desk: Desk, *jobs: str) -> None:
    """What a node does with the jobs of a partition that comes."""
    for job in jobs:
        desk.runner.suspect(job)
        desk.runner.enqueue(job)


async def test_runs_without_an_end_are_counted_and_fail_the_service(tmp_path: Path) -> None:
    service = ScriptedService()
    async with Desk(tmp_path, {Service.SOUND: service}) as desk:
        for job, deaths in (ONE, DEATHS), (TWO, DEATHS - 1):
            desk.accept(job)
            desk.runner.forget(job)
            died(desk, job, deaths)
        start_anew(desk, ONE, TWO)
        await desk.ends(ONE, TWO)
        assert (desk.entry(ONE).state, desk.entry(ONE).error) == (EntryState.ERROR, DEADLY)
        assert desk.entry(TWO).state is EntryState.SUCCESS
        assert times(desk, TWO) == [DEATHS]
        assert service.jobs == [TWO]


@pytest.mark.parametrize(
    ("times", "kills", "error"),
    [(1, 5, None), (DEATHS, 5, None), (1, KILLS - 2, None), (1, KILLS - 1, KILLED)],
)
async def test_runs_that_were_ended_from_outside_count_little(
    tmp_path: Path, times: int, kills: int, error: str | None
) -> None:
    """The last run before this life was killed as the others were; one of a life that is not known counts."""
    lives = Lives(killed=frozenset({"01234567"}))
    async with Desk(tmp_path, {Service.SOUND: ScriptedService()}, lives) as desk:
        for job, life in (ONE, "01234567"), (TWO, "76543210"):
            desk.accept(job)
            desk.runner.forget(job)
            desk.note(job, Started(Service.SOUND, f"{life}abc", times, kills))
        start_anew(desk, ONE, TWO)
        await desk.ends(ONE, TWO)
        assert desk.entry(ONE).error == error
        begun = [result for result in desk.of(Started, ONE) if isinstance(result, Started)]
        assert [(start.times, start.kills) for start in begun] == [(times, kills + 1)]
        assert begun[0].run.startswith(lives.this)
        assert desk.entry(TWO).error == (DEADLY if times == DEATHS else None)
        begun = [result for result in desk.of(Started, TWO) if isinstance(result, Started)]
        assert [(start.times, start.kills) for start in begun] == [(min(times + 1, DEATHS), kills)]


async def test_suspects_run_one_at_a_time_and_others_beside_them(tmp_path: Path) -> None:
    service = ScriptedService(hanging, limit=9)
    async with Desk(tmp_path, {Service.SOUND: service}) as desk:
        for job in (ONE, TWO):
            desk.accept(job)
            desk.runner.forget(job)
            died(desk, job, 1)
        desk.runner.suspects.add(["S"])
        start_anew(desk, ONE, TWO)
        desk.accept(THREE)
        await until(lambda: service.jobs == [THREE])
        assert times(desk, THREE) == [1]
        desk.runner.suspects.clear("S")
        await until(lambda: service.jobs == [THREE, ONE])
        desk.runner.forget(ONE)
        await until(lambda: service.jobs == [THREE, ONE, TWO])
        assert times(desk, TWO)[-1] == 2


async def test_a_run_that_the_process_outlives_is_not_counted(tmp_path: Path) -> None:
    """The engine is away, or the node is told to end: the log says that nothing died."""

    async def away(work: ServiceRun) -> None:
        raise Unavailable("the engine is away")

    service = ScriptedService(away, hanging)
    async with Desk(tmp_path, {Service.SOUND: service}) as desk:
        desk.accept(ONE)
        await until(lambda: len(service.works) == 2)
        assert desk.entry(ONE).begun == 1
    desk = desk
    assert times(desk, ONE) == [1, 1]
    assert [result.times for _, result in desk.noted if isinstance(result, Stopped)] == [0, 0]
    assert desk.entry(ONE).begun == 0
    desk.runner.suspect(ONE)
    assert desk.runner._suspected == set()
