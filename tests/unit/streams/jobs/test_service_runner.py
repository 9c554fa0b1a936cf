"""The runner: order, places, faults, jobs that end early, and runs that killed a process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.folding import retry
from streams.folding.lives import Lives
from streams.jobs import run_context
from streams.jobs import service_runner as module
from streams.jobs.job_store import JobStore
from streams.processes.deaths import DEADLY, DEATHS, KILLED, KILLS
from streams.services.service import ServiceRun
from tests.unit.streams.jobs.desk import ALL, AUDIO, SOUND, Desk, Script, ScriptedService, name, nothing
from tests.waiting import turn, until
from topics import keys
from topics.errors import AudioError, ServiceFault, Unavailable
from topics.jobs.options import Options, Service
from topics.jobs.records import Finished, Portion, Started, Stopped
from topics.jobs.rules import EntryState

ONE, TWO, THREE = name(1), name(2), name(3)
BOTH = Options(sound_event_detection=True, speech_analysis=True)


@asynccontextmanager
async def playing(
    spool: Path, services: dict[Service, ScriptedService], lives: Lives | None = None
) -> AsyncIterator[Desk]:
    """Run services at a desk; afterwards the spool must be empty."""
    async with Desk(spool, services, lives) as desk:
        yield desk
    assert list(spool.iterdir()) == []


async def play(spool: Path, services: dict[Service, ScriptedService]) -> Desk:
    """Run services for one job to its end."""
    async with playing(spool, services) as desk:
        await accepted_and_ended(desk)
    return desk


def saying(*portions: bytes) -> Script:
    async def script(work: ServiceRun) -> None:
        for number, data in enumerate(portions, 1):
            await work.emit(data, number / len(portions))

    return script


def failing(error: BaseException, *portions: bytes) -> Script:
    async def script(work: ServiceRun) -> None:
        await saying(*portions)(work)
        raise error

    return script


async def hanging(work: ServiceRun) -> None:
    await work.audio()
    await asyncio.Event().wait()


async def reading(work: ServiceRun) -> None:
    assert (await work.audio()).read_bytes() == AUDIO


async def accepted_and_ended(desk: Desk) -> None:
    desk.accept(ONE)
    await desk.ends(ONE)


# --- order ----------------------------------------------------------------------------------------------------------


async def test_job_runs_all_services_in_order(tmp_path: Path) -> None:
    read: dict[Service, list[bytes]] = {}

    async def reading_all(work: ServiceRun) -> None:
        read.update({service: list(work.portions(service)) for service in Service})
        await reading(work)

    services = {service: ScriptedService() for service in Service}
    services[Service.SOUND] = ScriptedService(saying(b"bark", b"siren"))
    services[Service.SPEECH] = ScriptedService(failing(ServiceFault("no voice"), b"he"))
    services[Service.CAPTION] = ScriptedService(reading_all)
    async with playing(tmp_path, services) as desk:
        desk.accept(ONE, ALL)
        await desk.ends(ONE)
    assert read == {service: [] for service in Service} | {Service.SOUND: [b"bark", b"siren"]}
    found = desk.entry(ONE)
    assert (found.state, found.portions, found.model, found.audio_ms) == (EntryState.SUCCESS, 2, "model", 1000)
    assert (found.warnings, desk.entry(ONE, Service.SPEECH).error) == (("careful",), "no voice")
    assert desk.store.portion(ONE, Service.SPEECH, 0) == b"he"
    order = [(type(result), result.service) for _, result in desk.results if isinstance(result, (Started, Finished))]
    for waiting in (Service.CAPTION, Service.INSIGHTS):
        for needed in (Service.SOUND, Service.SPEECH):
            assert order.index((Finished, needed)) < order.index((Started, waiting))
    assert len(order) == 10


async def order_of(spool: Path, limit: int, jobs: Sequence[tuple[int, str]]) -> list[str]:
    """Accept jobs with times and projects, while two jobs hold their places until all are there; return their runs."""
    gate = asyncio.Event()

    async def waiting(work: ServiceRun) -> None:
        await gate.wait()

    scripted = ScriptedService(waiting, limit=limit)
    async with playing(spool, {Service.SOUND: scripted}) as desk:
        for number, (at, project) in enumerate(jobs, 1):
            desk.accept(name(number), at=at, project=project)
        await until(lambda: len(scripted.works) == 2)
        gate.set()
        await desk.ends(*(name(number) for number in range(1, len(jobs) + 1)))
    assert scripted.most_at_work == 2
    return scripted.jobs


async def test_oldest_jobs_run_first(tmp_path: Path) -> None:
    found = await order_of(tmp_path, 2, [(at, "p") for at in (50, 60, 30, 10, 40)])
    assert found == [name(number) for number in (4, 3, 5, 1, 2)]


async def test_projects_take_turns(tmp_path: Path) -> None:
    """One more than the limit, for the project that had none; then in turn."""
    found = await order_of(tmp_path, 1, [(0, "loud")] * 8 + [(0, "quiet")] * 2)
    assert found[:2] == [name(1), name(9)]
    assert found.index(name(10)) <= 4


async def test_service_enqueued_repeatedly_runs_once(tmp_path: Path) -> None:
    scripted = ScriptedService()
    async with playing(tmp_path, {Service.SOUND: scripted}) as desk:
        desk.slow = True
        desk.accept(ONE)
        await until(lambda: bool(desk.of(Finished, ONE)))
        # Its end is on the log, but not folded: the head still says that it is pending.
        desk.runner.enqueue(ONE)
        await turn()
        desk.fold()
        desk.runner.enqueue(ONE)
        await turn()
        assert desk.entry(ONE).state is EntryState.SUCCESS
    assert len(scripted.works) == 1


async def test_hanging_engine_blocks_only_its_own_slot(tmp_path: Path) -> None:
    services = {Service.SPEECH: ScriptedService(hanging, nothing), Service.SOUND: ScriptedService()}
    async with playing(tmp_path, services) as desk:
        desk.accept(ONE, BOTH)
        desk.accept(TWO, BOTH)
        await desk.ends(TWO)
        assert desk.entry(ONE).state is EntryState.SUCCESS
        assert desk.entry(ONE, Service.SPEECH).state is EntryState.RUNNING


async def test_lag_is_age_of_oldest_waiting_job(tmp_path: Path) -> None:
    async with playing(tmp_path, {Service.SOUND: ScriptedService(hanging, limit=1)}) as desk:
        assert desk.runner.lag() == 0.0
        desk.accept(ONE)
        desk.accept(TWO)
        await until(lambda: desk.of(Started, ONE) and 0.02 <= desk.runner.lag() < 60)
        desk.remove(TWO)
        assert desk.runner.lag() == 0.0


# --- faults ---------------------------------------------------------------------------------------------------------


async def test_service_without_engine_fails(tmp_path: Path) -> None:
    desk = await play(tmp_path, {})
    assert desk.entry(ONE).error == "sound_event_detection is not available in this deployment"


@pytest.mark.parametrize(
    ("error", "message", "traced"),
    [
        (ServiceFault("no voice"), "no voice", False),
        (AudioError("the audio breaks"), "the audio breaks", False),
        (ValueError("a bug"), "a bug", True),
        (TimeoutError(), "TimeoutError", True),
        (ConnectionError("refused"), "refused", True),
        (ServiceFault("x" * 5000), "x" * 1000, False),
        (ServiceFault("\udc80"), "?", False),
    ],
)
async def test_service_exception_becomes_its_error(
    tmp_path: Path, error: Exception, message: str, traced: bool
) -> None:
    with capture_logs() as logs:
        desk = await play(tmp_path, {Service.SOUND: ScriptedService(failing(error, b"part"))})
    assert (desk.entry(ONE).error, desk.entry(ONE).portions) == (message, 1)
    [log] = logs
    assert (log["event"], log["log_level"]) == ("job.service_failed", "error" if traced else "warning")
    assert (log.get("exc_info") is error) is traced


@pytest.mark.parametrize("error", [Unavailable("away"), asyncio.CancelledError()])
async def test_unavailable_service_or_one_that_cancels_itself_starts_new_run(
    tmp_path: Path, error: BaseException
) -> None:
    scripted = ScriptedService(failing(error, b"old", b"older"), failing(error), saying(b"new"))
    with capture_logs() as logs:
        desk = await play(tmp_path, {Service.SOUND: scripted})
    assert [log["event"] for log in logs] == ["job.retry"] * 2 * isinstance(error, Unavailable)
    assert len({work.run for work in scripted.works}) == 3
    assert (desk.entry(ONE).portions, desk.store.portion(ONE, Service.SOUND, 0)) == (1, b"new")
    assert desk.entry(ONE).run == scripted.works[-1].run


@pytest.mark.parametrize("fault", [Unavailable("away"), OSError("the disk")])
async def test_failed_reads_and_appends_are_retried(tmp_path: Path, fault: Exception) -> None:
    """A failed read of the audio starts a new run; a rejected append does not."""

    async def script(work: ServiceRun) -> None:
        await reading(work)
        await saying(b"one", b"two")(work)

    scripted = ScriptedService(script)
    async with playing(tmp_path, {Service.SOUND: scripted}) as desk:
        desk.faults = [fault]
        desk.refusals = [fault, fault, None] * 5
        await accepted_and_ended(desk)
    assert (len(scripted.works), desk.refusals) == (2, [])
    assert (desk.entry(ONE).state, desk.entry(ONE).portions) == (EntryState.SUCCESS, 2)


async def test_missing_audio_part_fails_service(tmp_path: Path) -> None:
    async with playing(tmp_path, {Service.SOUND: ScriptedService(hanging)}) as desk:
        desk.accept(ONE)
        del desk.partition.rows[desk.store.row_key(ONE, keys.AUDIO, 0)]
        await desk.ends(ONE)
    assert desk.entry(ONE).error == "the job's audio is not complete: part 0 of 1 is missing"


@pytest.mark.parametrize("refusal", [OSError("the disk"), Unavailable("the log is away")])
@pytest.mark.parametrize("script", [nothing, failing(ServiceFault("the engine failed"))], ids=["end", "failure"])
async def test_end_that_log_refuses_starts_new_run_and_is_no_crash(
    tmp_path: Path, script: Script, refusal: Exception
) -> None:
    scripted = ScriptedService(script, nothing)
    async with playing(tmp_path, {Service.SOUND: scripted}) as desk:
        desk.refusals = [None, *[refusal] * run_context.APPENDS]
        await accepted_and_ended(desk)
    assert [result.lives for _, result in desk.noted if isinstance(result, Stopped)] == [()]
    assert len(scripted.works) == 2


async def test_long_outage_is_retried_every_thirty_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of the job see each attempt, and it stays on the log."""
    monkeypatch.undo()
    pauses: list[float] = []

    def pause(failures: int, longest: float | None = None) -> float:
        pauses.append(real(failures, longest))
        return 0.0

    real, outage = retry.pause, [failing(Unavailable("away"))] * 9
    monkeypatch.setattr(retry, "pause", pause)
    await play(tmp_path, {Service.SOUND: ScriptedService(*outage, nothing)})
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


async def test_service_reruns_if_late_run_hides_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late `Started` of a node that lost the partition hides the entry of the ending run."""
    monkeypatch.setattr(module, "FOLDED_SECONDS", 0.02)

    async def overtaken(work: ServiceRun) -> None:
        await here[0].emit(work.job, Started(Service.SOUND, "a late run"))

    scripted, here = ScriptedService(overtaken, nothing), list[Desk]()
    async with playing(tmp_path, {Service.SOUND: scripted}) as desk:
        here.append(desk)
        await accepted_and_ended(desk)
    assert (desk.entry(ONE).state, desk.entry(ONE).run) == (EntryState.SUCCESS, scripted.works[1].run)


# --- jobs that end early --------------------------------------------------------------------------------------------


async def test_removed_job_frees_its_slot(tmp_path: Path) -> None:
    scripted = ScriptedService(hanging, nothing, limit=1)
    async with playing(tmp_path, {Service.SOUND: scripted}) as desk:
        for number, job in enumerate((ONE, TWO, THREE)):
            desk.accept(job, at=number)
        await until(lambda: len(list(tmp_path.iterdir())) == 1)
        desk.remove(ONE)
        desk.remove(TWO)
        assert list(tmp_path.iterdir()) == []
        await desk.ends(THREE)
        assert scripted.at_work == 0
        assert [type(result) for job, result in desk.results if job == ONE] == [Started]
        # The same id again, with a run of its own.
        desk.accept(ONE)
        await desk.ends(ONE)
    assert scripted.jobs == [ONE, THREE, ONE]
    assert desk.entry(ONE).run == scripted.works[-1].run != scripted.works[0].run


async def test_jobs_resume_after_partition_returns(tmp_path: Path) -> None:
    services = {
        Service.SOUND: ScriptedService(hanging, nothing, limit=1),
        Service.SPEECH: ScriptedService(failing(Unavailable("away")), nothing),
    }
    async with playing(tmp_path, services) as desk:
        desk.accept(ONE, BOTH)
        desk.accept(TWO, SOUND)
        await until(lambda: len(list(tmp_path.iterdir())) == 1)
        for job in (ONE, TWO):
            desk.runner.forget(job)
        desk.elsewhere = True
        desk.runner.enqueue(ONE)
        before = len(desk.results)
        await turn()
        assert len(desk.results) == before
        desk.elsewhere = False
        for job in (TWO, ONE):
            desk.runner.enqueue(job)
        await desk.ends(ONE, TWO)
    assert desk.entry(ONE).state is desk.entry(TWO).state is EntryState.SUCCESS


async def test_job_waits_while_partition_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does not know the other owner yet, and learns of it before it loses the partition."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    async with playing(tmp_path, {Service.SOUND: ScriptedService()}) as desk:
        answers = iter([Unavailable("a late heartbeat")])

        def store_of(job: str) -> JobStore:
            for error in answers:
                raise error
            return desk.store

        monkeypatch.setattr(desk.runner, "store_of", store_of)
        desk.accept(ONE)
        await desk.ends(ONE)


async def test_stop_cancels_running_jobs_and_starts_none(tmp_path: Path) -> None:
    scripted = ScriptedService(hanging, limit=1)
    (tmp_path / "left.audio").write_bytes(b"of a process that died")
    desk = Desk(tmp_path, {Service.SOUND: scripted})
    desk.accept(ONE)
    await turn()
    assert desk.results == [], "it waits for the start"
    async with desk:
        assert list(tmp_path.iterdir()) == []
        desk.accept(TWO)
        await until(lambda: scripted.at_work == 1)
    desk.runner.enqueue(TWO)
    await turn()
    assert scripted.at_work == 0
    assert list(tmp_path.iterdir()) == []
    assert desk.of(Finished, ONE) == desk.of(Portion, ONE) == []
    assert scripted.jobs == [ONE]


# --- services that were running when a process died: three runs without an end fail a service ------------------------


def starts(desk: Desk, job: str) -> list[Started]:
    return [result for result in desk.of(Started, job) if isinstance(result, Started)]


def times(desk: Desk, job: str) -> list[int]:
    return [len(start.lives) for start in starts(desk, job)]


def died(desk: Desk, job: str, runs: int) -> None:
    """Accept a job, and fold the remains of dead processes: runs without an end."""
    desk.accept(job)
    desk.runner.forget(job)
    lives = [f"life-{run}" for run in range(runs)]
    for run in range(runs):
        desk.note(job, Started(Service.SOUND, f"r{run}", tuple(lives[: run + 1])))


def start_anew(desk: Desk, *jobs: str) -> None:
    for job in jobs:
        desk.runner.suspect(job)
        desk.runner.enqueue(job)


async def test_repeated_crashes_fail_the_service(tmp_path: Path) -> None:
    service = ScriptedService()
    async with playing(tmp_path, {Service.SOUND: service}) as desk:
        died(desk, ONE, DEATHS)
        died(desk, TWO, DEATHS - 1)
        start_anew(desk, ONE, TWO)
        await desk.ends(ONE, TWO)
        assert (desk.entry(ONE).state, desk.entry(ONE).error) == (EntryState.ERROR, DEADLY)
        assert desk.entry(TWO).state is EntryState.SUCCESS
        assert times(desk, TWO) == [DEATHS]
        assert service.jobs == [TWO]


@pytest.mark.parametrize(
    ("times", "kills", "error"), [(1, 5, None), (DEATHS, 5, None), (1, KILLS - 2, None), (1, KILLS - 1, KILLED)]
)
async def test_external_kills_count_less_than_crashes(
    tmp_path: Path, times: int, kills: int, error: str | None
) -> None:
    """The last run of a process known as killed counts as a kill; that of an unknown process as a death."""
    lives = Lives(killed=frozenset({"01234567"}))
    async with playing(tmp_path, {Service.SOUND: ScriptedService()}, lives) as desk:
        for job, life in (ONE, "01234567"), (TWO, "76543210"):
            died(desk, job, 0)
            earlier = [f"life-{number}" for number in range(times - 1)]
            desk.note(job, Started(Service.SOUND, f"{life}abc", (*earlier, life), kills))
        start_anew(desk, ONE, TWO)
        await desk.ends(ONE, TWO)
        assert desk.entry(ONE).error == error
        [begun] = starts(desk, ONE)
        assert (len(begun.lives), begun.kills, begun.run.startswith(lives.this)) == (times, kills + 1, True)
        assert desk.entry(TWO).error == (DEADLY if times == DEATHS else None)
        [begun] = starts(desk, TWO)
        assert (len(begun.lives), begun.kills) == (times + 1, kills)


async def test_runs_of_live_processes_are_not_counted_as_crashes(tmp_path: Path) -> None:
    """Neither node saw an end of its runs, because the partition moved between them."""
    async with Desk(tmp_path, {Service.SOUND: ScriptedService()}, Lives("this-one")) as desk:
        desk.accept(ONE)
        desk.runner.forget(ONE)
        for number in range(DEATHS):
            desk.note(ONE, Started(Service.SOUND, f"this-one{number}", ("an-other", "this-one")))
            desk.note(ONE, Started(Service.SOUND, f"an-other{number}", ("this-one", "an-other")))
        start_anew(desk, ONE)
        await desk.ends(ONE)
        assert desk.entry(ONE).state is EntryState.SUCCESS
        last = starts(desk, ONE)[-1]
        assert last.lives == ("an-other", "this-one")


async def test_suspects_run_one_at_a_time_beside_other_jobs(tmp_path: Path) -> None:
    service = ScriptedService(hanging, limit=9)
    async with playing(tmp_path, {Service.SOUND: service}) as desk:
        died(desk, ONE, 1)
        died(desk, TWO, 1)
        start_anew(desk, ONE, TWO)
        desk.accept(THREE)
        await until(lambda: sorted(service.jobs) == [ONE, THREE])
        assert times(desk, THREE) == [1]
        desk.runner.forget(ONE)
        await until(lambda: sorted(service.jobs) == [ONE, TWO, THREE])
        assert times(desk, TWO)[-1] == 2


async def test_run_that_ends_without_crash_is_not_counted(tmp_path: Path) -> None:
    """The engine is down, or the node is stopping: the log shows that nothing died."""
    service = ScriptedService(failing(Unavailable("the engine is away")), hanging)
    async with playing(tmp_path, {Service.SOUND: service}) as desk:
        desk.accept(ONE)
        await until(lambda: len(service.works) == 2)
        assert len(desk.entry(ONE).begun_by) == 1
    assert times(desk, ONE) == [1, 1]
    assert [result.lives for _, result in desk.noted if isinstance(result, Stopped)] == [(), ()]
    assert desk.entry(ONE).begun_by == ()
    desk.runner.suspect(ONE)
    assert desk.runner._suspected == set()
