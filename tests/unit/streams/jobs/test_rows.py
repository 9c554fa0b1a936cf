"""Rows of jobs: the intake's writes and verdicts, bills, and possible remains of a crash."""

from collections.abc import AsyncGenerator, Sequence
from random import Random
from unittest import mock

import pytest
import xxhash

from streams.agents import NodeApp
from streams.folding import billing as shared
from streams.folding import draft, head_store, retry
from streams.jobs.job_biller import JobBiller
from streams.jobs.run_context import read_rows
from tests.unit.streams.folding.books import Books, billing
from tests.unit.streams.jobs.world import JOB, KEEP_MS, JobWorld, accepted
from tests.unit.streams.verdicts import expect
from tests.waiting import until
from topics import keys, record_codec
from topics.catalog import TopicPartition
from topics.errors import AudioError, DirectoryDown, NotOwned, Unavailable
from topics.folding import AudioRow, Verdict
from topics.jobs.options import Options, Service
from topics.jobs.records import Billed, Finished, JobCommand, JobResult, Overdue, Part, Portion, Removed, Started
from topics.jobs.rules import JobState
from topics.ports.ledger import Charge, MeteredService


async def told(*commands: JobCommand) -> tuple[JobWorld, list[Verdict]]:
    world = JobWorld()
    futures = [expect(world.verdicts, command.command) for command in commands]
    world.take(*commands)
    assert [command for command, future in zip(commands, futures, strict=True) if not future.done()] == [
        command for command in commands if isinstance(command, Removed)
    ], "verdicts on deletions wait for the changelog"
    world.partition.sync()
    return world, [future.result() for future in futures]


def part(number: int, data: bytes) -> Part:
    return Part(f"p{number}", "a", number, data)


async def test_parts_acceptance_and_removal_are_answered_stored_and_announced() -> None:
    parts = part(0, b"one"), part(1, b"two")
    world, verdicts = await told(*parts)
    assert [verdict.status for verdict in verdicts] == [200, 200]
    assert world.store.audio(JOB, 0, 2) == [
        AudioRow(offset, 3, xxhash.xxh3_128_digest(data)) for offset, data in enumerate([b"one", b"two"])
    ]
    assert world.store.accepted(JOB) is None
    world, verdicts = await told(*parts, accepted("a", 2))
    assert verdicts[-1].status == 200
    assert world.store.accepted(JOB) == accepted("a", 2)
    assert KEEP_MS + world.now in {due for due, _ in world.store.due(2**60, 9)}
    assert [list(changes.work) for changes in world.announced] == [[], [], [JOB]]
    world, verdicts = await told(*parts, accepted("a", 2), Removed("r"), Removed("again"))
    assert [verdict.status for verdict in verdicts] == [200, 200, 200, 204, 404]
    assert (list(world.announced[3].gone), list(world.announced[3].changed)) == ([JOB], [JOB])


async def test_parts_are_read_in_order_and_damage_is_reported() -> None:
    world, _ = await told(part(0, b"one"), part(1, b"two"))
    rows = world.store.audio(JOB, 0, 2)
    values = {record.offset: record.value or b"" for record in world.commands}

    async def read(records: dict[int, bytes]) -> list[bytes]:
        async def by_offset(tp: TopicPartition, offsets: Sequence[int]) -> AsyncGenerator[bytes | None, None]:
            for offset in offsets:
                yield records.get(offset)

        return [data async for data in read_rows(mock.Mock(values=by_offset), world.store, rows)]

    assert await read(values) == [b"one", b"two"]
    for other in (part(1, b"other"), Removed("r")):
        with pytest.raises(AudioError, match="damaged"):
            await read({**values, 1: record_codec.encode(other)})
    with pytest.raises(AudioError, match="retention"):
        await read({0: values[0]})


# --- rows that the changelog missed in a crash are written again when the log is folded again -----------------------


#: A step of a job: a record that is folded, or milliseconds that pass.
Event = JobCommand | JobResult | int


def committed(*events: Event) -> JobWorld:
    """Return a job after these steps, committed."""
    world = JobWorld()
    live(world, *events)
    world.commit()
    return world


def live(world: JobWorld, *events: Event) -> None:
    for event in events:
        if isinstance(event, int):
            world.now += event
        else:
            world.take(event)


def rows_of(world: JobWorld) -> dict[bytes, bytes]:
    """Return the job's rows, which the due times and the lists point to."""
    return {key: row for key, row in world.partition.rows.items() if key in world.left()}


STARTED, BILLED = Started(Service.SOUND, "r"), Billed((Service.SOUND,))
READY = part(0, b"one"), accepted("a", 1)


def ended(portions: int) -> list[JobResult]:
    found = [Portion(Service.SOUND, "r", number, b"found") for number in range(portions)]
    return [STARTED, *found, Finished(Service.SOUND, "r", portions)]


KEPT = part(0, b"one"), accepted("a", 1, keep_audio_ms=60_000)


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        pytest.param([], READY, JobState.ACCEPTED, id="acceptance"),
        pytest.param(
            [*KEPT, *ended(0), BILLED], [60_001, Overdue("sweep", 1, 2**60)], JobState.COMPLETED, id="audio expires"
        ),
        pytest.param(READY, ended(1), JobState.COMPLETED, id="end of a service"),
        pytest.param(READY, [Removed("c")], JobState.REMOVED, id="removal"),
        pytest.param([*READY, *ended(1)], [Removed("c")], JobState.REMOVED, id="removal before the bill"),
        pytest.param(
            READY,
            [*ended(0), KEEP_MS + 1, Overdue("sweep", 1, 1), BILLED],
            JobState.COMPLETED,
            id="expiry before the bill",
        ),
    ],
)
@pytest.mark.parametrize("standby", [False, True])
def test_refolding_restores_rows(
    before: Sequence[Event], after: Sequence[Event], state: JobState, standby: bool
) -> None:
    """The changelog loses what came after; then a table is made from the changelog alone."""
    world = committed(*before)
    stored = rows_of(world)
    live(world, *after)
    rows = rows_of(world)
    assert rows != stored
    assert world.there.state is state
    world.crash(0.0, local=True, order=Random(0))
    assert list(world.announced[-1].unbilled) == ([JOB] if isinstance(after[-1], Finished) else [])
    world.commit()
    world.crash(1.0, local=False, order=Random(0), standby=standby)
    assert rows_of(world) == rows
    assert world.there.due(KEEP_MS) in {due for due, _ in world.store.due(2**60, 9)}


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("cut", range(12))
@pytest.mark.parametrize("bill", [BILLED, None], ids=["billed", "unbilled"])
def test_removed_job_leaves_head_and_unbilled_acceptance_after_any_changelog_cut(
    monkeypatch: pytest.MonkeyPatch, cut: int, standby: bool, bill: Billed | None
) -> None:
    """It is erased in steps."""
    monkeypatch.setattr(draft, "ERASED_ROWS", 3)
    monkeypatch.setattr(head_store, "TIDIED_ROWS", 2)
    world = committed(*READY, *ended(3), *([bill] if bill else []))
    assert list(world.store.unsettled_ids()) == ([] if bill else [JOB])
    world.take(Removed("c"))
    deletions = len(world.partition.changelog) - world.flushed
    assert deletions < 12
    world.crash((cut + 0.5) / deletions if cut < deletions else 1.0, local=False, order=Random(0), standby=standby)
    assert world.there.state is JobState.REMOVED
    kept = [keys.HEAD] if bill else [keys.HEAD, keys.REQUEST]
    assert world.left() == {world.store.row_key(JOB, kind) for kind in kept}
    assert list(world.store.unsettled_ids()) == ([] if bill else [JOB])


# --- bills: the ledger first, then the log; an unavailable ledger blocks and loses nothing --------------------------


def succeeded() -> JobWorld:
    """Return a job with two services, one of which has succeeded."""
    options = Options(sound_event_detection=True, speech_analysis=True)
    end = Finished(Service.SOUND, "r", 0, audio_ms=2500, model="m@1")
    return committed(part(0, b"one"), accepted("a", 1, options), STARTED, end)


async def billed(world: JobWorld, ledger: Books | None, faults: Sequence[Exception] = ()) -> list[str]:
    """Let the biller take the job; return the events in order."""
    happened: list[str] = []
    refusals = list(faults)

    async def emit(job: str, result: Billed) -> None:
        if refusals:
            raise refusals.pop(0)
        happened.append(f"{len(ledger.lines) if ledger else 0} lines")
        world.take(result)

    app = NodeApp()
    async with billing(app, JobBiller(app, lambda job: world.store, ledger, emit), "X" * 24, JOB):
        await until(lambda: world.head is None or not world.head.unbilled)
    return happened


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LONGEST_PAUSE_SECONDS", 0.002)


LINE = Charge(JOB, MeteredService.SOUND, "p", "o", 2500, "m@1", 1_700_000_000_000)


async def test_charge_reaches_ledger_before_log() -> None:
    ledger, world = Books(), succeeded()
    assert await billed(world, ledger) == ["1 lines"]
    assert ledger.lines == [LINE]


async def test_ledger_and_log_failures_are_retried() -> None:
    ledger = Books(DirectoryDown("away"), Unavailable("away"), ValueError("a bug"))
    assert await billed(succeeded(), ledger, [Unavailable("full")]) == ["2 lines"]
    assert ledger.lines == [LINE, LINE]


async def test_removed_job_is_billed_then_deleted_except_its_head() -> None:
    ledger, world = Books(), succeeded()
    world.take(Removed("c"))
    assert world.store.accepted(JOB) is not None
    await billed(world, ledger)
    assert ledger.lines == [LINE]
    assert world.left() == {world.store.row_key(JOB, keys.HEAD)}


async def test_jobs_are_marked_billed_without_ledger() -> None:
    assert await billed(succeeded(), None) == ["0 lines"]


async def test_billing_retries_while_partition_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does not know the other owner yet, and learns of it before it loses the partition."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.001)
    world, app = succeeded(), NodeApp()
    store_of = mock.Mock(side_effect=[Unavailable("a late heartbeat"), *[world.store] * 9])
    async with billing(app, JobBiller(app, store_of, None, mock.AsyncMock()), JOB):
        await until(lambda: store_of.call_count > 1)


async def test_biller_skips_jobs_of_lost_partitions() -> None:
    gone, ledger, emit = mock.Mock(side_effect=NotOwned("elsewhere")), Books(), mock.AsyncMock()
    app = NodeApp()
    async with billing(app, JobBiller(app, gone, ledger, emit), JOB):
        await until(lambda: gone.called)
    gone.assert_called_once_with(JOB)
    emit.assert_not_called()
    assert ledger.lines == []
