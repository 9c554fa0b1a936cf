"""The sweeper: which deadlines are over, when a partition was served and when not."""

import asyncio
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from streams.disk import DiskFull
from streams.folding import sweeper
from streams.folding.head_store import HeadStore
from streams.folding.presence import GAP_MS, Presence
from streams.folding.sweeper import SWEEP, Sweeper
from streams.jobs.job_store import JobStore
from streams.sessions.store import SessionStore
from tests.unit.streams.sessions.rows import MemoryPartition, drafting
from topics import keys, service_time
from topics.jobs.options import Service
from topics.jobs.rules import UPLOAD_IDLE_MS, Entry, EntryState, JobHead, JobState
from topics.service_time import MINUTE_MS, Served
from topics.sessions.records import Cursor
from topics.sessions.rules import FILE_MS, TOMBSTONE_MS, SessionHead, SessionState
from topics.times import DAY_MS

ID = "S" * 24
IDLE_MS = 15_000
PATIENCE_MS = DAY_MS
STREAM = SessionHead("stream", None, touched=1000, command=7, next=4, cursor=Cursor(4), opened_at=500)
WAITS = replace(STREAM, cursor=Cursor(3))
NOW = 10**9


def store_with(due: dict[str, int]) -> SessionStore:
    store = SessionStore(MemoryPartition())
    with drafting(store) as draft:
        for session, deadline in due.items():
            draft.put(keys.due_key(deadline, session), b"")
    return store


class Room:
    """A partition with one session or job, at times that the test sets."""

    def __init__(self, head: SessionHead | JobHead) -> None:
        of: type[HeadStore[Any]] = SessionStore if isinstance(head, SessionHead) else JobStore
        self.store = of(MemoryPartition())
        self.store.partition.write({self.store.due_key(head.due(IDLE_MS), ID): b""})
        self.store.remember(ID, head)
        self.store.presence.served = Served(head.touched)
        #: What was sent: the offset of the last command seen, or "given up".
        self.sent: list[int | str] = []

    async def send(self, session: str, due: int, seen: int) -> None:
        self.sent.append(seen)

    async def give_up(self, session: str, due: int, seen: int) -> None:
        self.sent.append("given up")

    async def at(self, until: int, *absences: tuple[int, int]) -> list[int | str]:
        """Return what a sweep at this time sends."""
        self.sent = []
        self.store.presence.served = Served(until, absences)
        await Sweeper(lambda: [self.store], IDLE_MS, PATIENCE_MS, self.send, self.give_up).sweep()
        return self.sent

    def due(self) -> list[int]:
        return [due for due, _ in self.store.due(2**62, 9)]


async def swept(stores: list[SessionStore], now: int) -> list[tuple[str, int]]:
    sent: list[tuple[str, int]] = []

    async def send(session: str, due: int, seen: int) -> None:
        assert seen == -1
        sent.append((session, due))

    for store in stores:
        store.presence.served = Served(now)
    assert await Sweeper(lambda: stores, IDLE_MS, PATIENCE_MS, send, mock.AsyncMock()).sweep() == len(sent)
    return sent


# --- deadlines ------------------------------------------------------------------------------------------------------


SOUND = Entry(Service.SOUND, EntryState.SUCCESS, billed=True)
DONE = JobHead(
    JobState.COMPLETED, 7, touched=1000, upload="u", parts=1, created=1000, entries=(SOUND,), ended_at=90_000
)
FILE = SessionHead("file", None, touched=500 + FILE_MS, command=7, next=1, opened_at=500)
DELETED = SessionHead("stream", None, 1000, 7, SessionState.DELETED, finished=True, derived=True)


@pytest.mark.parametrize(
    ("head", "last", "absences"),
    [
        pytest.param(STREAM, 1000 + IDLE_MS, (), id="after the last chunk"),
        pytest.param(replace(STREAM, analysed_at=60_000), 60_000 + IDLE_MS, (), id="after the last window"),
        pytest.param(STREAM, 1000 + IDLE_MS + 3_600_000, ((6000, 3_606_000),), id="an absence does not count"),
        pytest.param(STREAM, 1000 + IDLE_MS + 3000, ((6000, 8000), (8000, 9000)), id="nor do two"),
        pytest.param(FILE, 600 + FILE_MS, ((600, 700),), id="the upload of a file has a day"),
        pytest.param(DELETED, 1000 + TOMBSTONE_MS, (), id="a derived id stays taken for an hour"),
        pytest.param(
            JobHead(JobState.RECEIVING, 7, touched=1000, upload="u", parts=1),
            1500 + UPLOAD_IDLE_MS,
            ((2000, 2500),),
            id="the upload of a recording has an hour",
        ),
        pytest.param(replace(DONE, keep_audio_ms=10_000), 11_000, (), id="a job's audio is released before the job"),
        pytest.param(DONE, 90_000 + IDLE_MS, (), id="a job is kept after its end"),
        pytest.param(
            replace(DONE, state=JobState.REMOVED, entries=(), ended_at=1000),
            1000 + IDLE_MS,
            (),
            id="the id of a removed job stays taken for as long",
        ),
    ],
)
async def test_ends_after_its_service_time(
    head: SessionHead | JobHead, last: int, absences: tuple[tuple[int, int], ...]
) -> None:
    room = Room(head)
    assert await room.at(last, *absences) == []
    assert room.due() == [last]
    assert await room.at(last + 1, *absences) == [7]


@pytest.mark.parametrize(
    "head",
    [
        WAITS,
        replace(STREAM, state=SessionState.READONLY),
        replace(WAITS, kind="file", state=SessionState.READONLY, cursor=Cursor()),
    ],
    ids=["stream", "end of a stream", "file"],
)
async def test_session_does_not_expire_while_audio_waits(head: SessionHead) -> None:
    room = Room(head)
    for hours in range(1, 24):
        assert await room.at(NOW + hours * 3_600_000) == []
    done = replace(head, cursor=Cursor(4), finished=True, analysed_at=NOW + DAY_MS)
    room.store.remember(ID, done)
    assert await room.at(NOW + DAY_MS + IDLE_MS) == []
    assert await room.at(NOW + DAY_MS + IDLE_MS + 1) == [7]


async def test_twenty_restarts_delay_expiry_only_by_absences() -> None:
    room, partition = Room(STREAM), MemoryPartition()
    now = STREAM.touched
    for _ in range(20):
        presence = Presence(partition)
        for _ in range(2):
            presence.beat(now, often=True)
            now += 500
        assert presence.served is not None
        assert await room.at(presence.served.until, *presence.served.absences) == []
        now += 40_000
    presence = Presence(partition)
    ran = 20 * 500
    presence.beat(now, often=True)
    for _ in range(11):
        now += 500
        presence.beat(now, often=True)
        assert presence.served is not None
        sent = await room.at(presence.served.until, *presence.served.absences)
        ran += 500
        assert sent == ([7] if ran > IDLE_MS else [])
    assert sent == [7]


async def test_analysis_that_stands_still_is_given_up_after_a_day_of_service_time() -> None:
    room = Room(WAITS)
    sent, away = [], (NOW + 3_600_000, NOW + 3_600_000 + 7 * DAY_MS)
    for minutes in range(60):
        assert await room.at(NOW + minutes * MINUTE_MS) == []
    # New chunks do not help, and neither does an absence of a week.
    room.store.remember(ID, replace(WAITS, next=9, command=12, touched=NOW + 3_600_000))
    for minutes in range(22 * 60):
        sent += await room.at(away[1] + minutes * MINUTE_MS, away)
    assert sent == []
    for minutes in range(22 * 60, 24 * 60):
        sent += await room.at(away[1] + minutes * MINUTE_MS, away)
    assert "given up" in sent
    assert set(sent) == {"given up"}


async def test_slow_analysis_is_not_given_up() -> None:
    room = Room(WAITS)
    for hours in range(100):
        room.store.remember(ID, replace(WAITS, windows=hours // 20))
        assert await room.at(NOW + hours * 3_600_000) == []


async def test_session_of_a_clock_that_was_ahead_expires_once_it_is_right() -> None:
    ahead = NOW + DAY_MS
    room = Room(replace(STREAM, touched=ahead, analysed_at=ahead, opened_at=ahead))
    assert await room.at(NOW) == []
    assert room.due() == [NOW + IDLE_MS]
    assert await room.at(NOW + IDLE_MS) == []
    assert await room.at(NOW + IDLE_MS + 1) == [7]


# --- jobs -----------------------------------------------------------------------------------------------------------


async def test_job_is_kept_until_its_time_after_its_end_is_over() -> None:
    """A job that waited for longer than it is kept was removed before it ran, or as soon as it was done."""
    running = replace(DONE, state=JobState.PROCESSING, entries=(replace(SOUND, state=EntryState.RUNNING),))
    room = Room(running)
    for seconds in range(0, 90_000, 10_000):
        assert await room.at(NOW + 1000 * seconds) == []
    room.store.remember(ID, replace(DONE, ended_at=2 * NOW))
    assert await room.at(2 * NOW + IDLE_MS) == []
    assert await room.at(2 * NOW + IDLE_MS + 1) == [7]


async def test_unbilled_job_is_kept() -> None:
    room = Room(replace(DONE, entries=(replace(SOUND, billed=False),)))
    assert await room.at(NOW) == []
    room.store.remember(ID, DONE)
    assert await room.at(NOW + MINUTE_MS) == [7]


# --- presence -------------------------------------------------------------------------------------------------------


async def test_nothing_is_swept_before_first_beat() -> None:
    """After an absence, a sweep by the clock would end what the absence extends."""
    store = store_with({ID: 1})
    store.presence.served = None
    assert await Sweeper(lambda: [store], IDLE_MS, PATIENCE_MS, mock.AsyncMock(), mock.AsyncMock()).sweep() == 0


def test_next_owner_notes_absence_once() -> None:
    partition = MemoryPartition()
    first = Presence(partition)
    for now in range(0, 10_000, 1000):
        first.beat(now, often=True)
    second, third = Presence(partition), Presence(partition)
    second.beat(60_000, often=True)
    assert second.served == Served(60_000, ((9000, 60_000),))
    third.beat(60_500, often=True)
    assert third.served == Served(60_500, ((9000, 60_000), (60_000, 60_500)))
    # The first one was paused meanwhile: its own rows are late, and the log drops them.
    first.beat(60_600, often=True)
    assert first.served == Served(60_600, ((9000, 60_600),))


def test_beats_are_noted_often_only_with_sessions() -> None:
    often, seldom = MemoryPartition(), MemoryPartition()
    for partition, is_often in ((often, True), (seldom, False)):
        presence = Presence(partition)
        for now in range(0, 120_000, 1000):
            presence.beat(now, often=is_often)
    assert (len(often.changelog), len(seldom.changelog)) == (120, 2)


def test_pause_and_full_disk_are_absences(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = MemoryPartition()
    presence = Presence(partition)
    presence.beat(0, often=True)
    presence.beat(GAP_MS, often=True)
    assert presence.served == Served(GAP_MS)
    with monkeypatch.context() as full:
        full.setattr(partition, "write", mock.Mock(side_effect=DiskFull("full")))
        for now in range(GAP_MS + 1000, 60_000, 1000):
            with pytest.raises(DiskFull):
                presence.beat(now, often=True)
    presence.beat(60_000, often=True)
    assert presence.served == Served(60_000, ((GAP_MS, 60_000),))
    assert service_time.served(partition.get(keys.SERVED)) == presence.served


# --- pace -----------------------------------------------------------------------------------------------------------


class Folding:
    """A log whose fold deletes the requested entries, a batch at a time."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.sent: list[tuple[str, int]] = []
        self.waiting: list[tuple[str, int]] = []
        self.most = 0

    async def send(self, session: str, due: int, seen: int) -> None:
        self.sent.append((session, due))
        self.waiting.append((session, due))
        self.most = max(self.most, len(self.waiting))
        await asyncio.sleep(0.001)

    async def fold(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            batch, self.waiting = self.waiting[:100], self.waiting[100:]
            self.store.partition.write({keys.due_key(due, session): None for session, due in batch})


async def test_sweeper_expires_due_sessions_of_every_partition() -> None:
    one, other = store_with({"A" * 24: 50, "B" * 24: 10}), store_with({"C" * 24: 51})
    assert await swept([one, other], 9) == []
    assert [session[0] for session, _ in await swept([one, other], 50)] == ["B", "A"]
    assert (await swept([one, other], 51))[-1] == ("C" * 24, 51)


async def test_large_sweep_keeps_pace_with_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "FOLD_SECONDS", 60.0)
    due = {f"{number:024d}": number for number in range(4 * SWEEP + 5)}
    log = Folding(store_with(due))
    log.store.presence.served = Served(10_000)
    folding = asyncio.create_task(log.fold())
    assert await Sweeper(lambda: [log.store], IDLE_MS, PATIENCE_MS, log.send, log.send).sweep() == len(due)
    folding.cancel()
    assert log.sent == list(due.items())
    assert log.most <= SWEEP


async def test_unfolded_sessions_wait_for_next_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold has too much to do."""
    monkeypatch.setattr(sweeper, "FOLD_SECONDS", 0.02)
    other = store_with({"A" * 24: 1})
    store = store_with({f"{number:024d}": number for number in range(SWEEP + 5)})
    assert len(await swept([store, other], 10_000)) == SWEEP + 1


async def test_sweep_stops_when_partition_is_lost() -> None:
    stores = [store_with({f"{number:024d}": number for number in range(SWEEP + 5)})]
    stores[0].presence.served = Served(10_000)
    sent = []

    async def send(session: str, due: int, seen: int) -> None:
        sent.append(session)
        stores.clear()

    assert await Sweeper(lambda: stores, IDLE_MS, PATIENCE_MS, send, send).sweep() == len(sent) == SWEEP
