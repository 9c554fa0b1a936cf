"""Jobs on a whole node: from the parts on the log to the portions, the ledger and the trimmed log, across restarts."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from streams.embedded.maintenance import Maintenance
from streams.node.node import Node
from streams.services.service import RunSummary, ServiceRun
from tests.audio import encoded, noise
from tests.unit.streams.folding.books import Books
from tests.unit.streams.node.nodes import Home, log_of, noted, tp
from tests.waiting import until
from topics.catalog import JOB_COMMANDS
from topics.errors import AudioError, Unavailable
from topics.jobs.options import Options, Service
from topics.jobs.records import PART_BYTES, Accepted, Overdue, Part, Removed, Source
from topics.jobs.rules import EntryState, JobState
from topics.keys import new_id
from topics.ports.ledger import Charge

BOTH = Options(sound_event_detection=True, speech_analysis=True, translation=True)
SOUND = Options(sound_event_detection=True)
PARTS = [b"first ", b"second ", b"third"]


class Echo:
    """Emits the audio as its portions; waits while it is closed."""

    limit = 2

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.cancelled: list[str] = []
        self.begun: list[str] = []

    async def perform(self, work: ServiceRun) -> RunSummary:
        self.begun.append(work.job)
        try:
            path = await work.audio()
            await work.emit(path.read_bytes(), 0.5)
            await self.open.wait()
            await work.emit(b"end", 1.0)
        except asyncio.CancelledError:
            self.cancelled.append(work.job)
            raise
        return RunSummary("echo@1", 1500)


class Reader:
    """Emits the result of the speech service in brackets."""

    limit = 1

    async def perform(self, work: ServiceRun) -> RunSummary:
        await work.emit(b"<" + b"".join(work.portions(Service.SPEECH)) + b">", 1.0)
        return RunSummary("reader@1", 1500)


class House(Home):
    """A home with services and a ledger."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.echo, self.books = Echo(), Books()
        self.services = {Service.SOUND: self.echo, Service.SPEECH: self.echo, Service.TRANSLATION: Reader()}
        self.ledger = self.books


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def accepted(options: Options = BOTH, digest: bytes = b"d", keep_audio_ms: int = 0) -> Accepted:
    source = Source("audio/wav", "wav", 1, 8000, 1)
    return Accepted(new_id(), "u", len(PARTS), "p", "o", options, source, "m", digest, keep_audio_ms)


async def post(node: Node, job: str, keep_audio_ms: int = 0) -> None:
    """Upload as the edge does: the parts at once, then the acceptance."""
    parts = [Part(f"{job}{number}", "u", number, data) for number, data in enumerate(PARTS)]
    await asyncio.gather(*(node.jobs.upload(job, part, "p") for part in parts))
    assert node.jobs.view(job) is None
    verdict = await node.jobs.submit(job, accepted(keep_audio_ms=keep_audio_ms))
    assert verdict.status == 200


async def is_not_kept(node: Node, job: str) -> None:
    for read in anext(node.jobs.audio(job, 0, 1)), node.jobs.picture(job, 30), recording(node, job):
        with pytest.raises(AudioError, match="was not kept"):
            await read


def is_completed(node: Node, job: str) -> bool:
    view = node.jobs.view(job)
    return view is not None and view.head.state is JobState.COMPLETED and not view.head.unbilled


def result(node: Node, job: str) -> dict[Service, bytes]:
    view = node.jobs.view(job)
    assert view is not None
    assert {entry.state for entry in view.head.entries} == {EntryState.SUCCESS}
    return {
        entry.service: b"".join(node.jobs.portion(job, entry.service, n) or b"?" for n in range(entry.portions))
        for entry in view.head.entries
    }


WHOLE = b"first second third" + b"end"
FOUND = {Service.SOUND: WHOLE, Service.SPEECH: WHOLE, Service.TRANSLATION: b"<" + WHOLE + b">"}


async def test_job_is_completed_billed_and_its_audio_trimmed(house: House) -> None:
    async with house.serving() as node:
        job, log = node.jobs.new_id(), log_of(node)
        at = tp(JOB_COMMANDS, job)
        keeper = Maintenance(log, floor=node.partitions.floor)
        house.echo.open.clear()
        await post(node, job)
        await until(lambda: len(house.echo.begun) == 2)
        # It is durable one iteration of the loop before the consumer sees it.
        await until(lambda: noted(node, *at) == log.end(at) and node.partitions.floor(at) is not None)
        await keeper.round()
        assert log.earliest(at) == node.partitions.floor(at) == 0
        follower = node.jobs.follow(job)
        house.echo.open.set()
        while not is_completed(node, job):
            assert await follower.changed(60)
        assert result(node, job) == FOUND
        billed = {(line.job, line.service.value): line.audio_ms for line in house.books.lines}
        assert billed == {(job, service.value): 1500 for service in FOUND}
        assert {(line.project, line.organization) for line in house.books.lines} == {("p", "o")}
        await keeper.round()
        assert log.earliest(at) == log.end(at)
        # The same request again, and another one under its key.
        assert (await node.jobs.submit(job, accepted())).status == 200
        assert (await node.jobs.submit(job, accepted(digest=b"other"))).status == 409
        assert result(node, job) == FOUND
    assert house.failures == 0


async def test_removed_job_is_cancelled_and_gone(house: House) -> None:
    async with house.serving() as node:
        job = node.jobs.new_id()
        house.echo.open.clear()
        await post(node, job)
        await until(lambda: len(house.echo.begun) == 2)
        follower = node.jobs.follow(job)
        assert (await node.jobs.submit(job, Removed("r"))).status == 204
        assert await follower.changed(60)
        assert node.jobs.view(job) is None
        await until(lambda: house.echo.cancelled == [job, job])
        assert (await node.jobs.submit(job, Removed("r2"))).status == 404
        await until(lambda: node.partitions.floor(tp(JOB_COMMANDS, job)) != 0)
        assert house.books.lines == []


async def test_kept_audio_is_readable_by_the_range_until_expiry(house: House) -> None:
    house.services = {Service.SOUND: Reader()}
    async with house.serving(sweep_seconds=0.02) as node:
        job, audio = node.jobs.new_id(), encoded(noise(3 * 500_000))
        pieces = [audio[at : at + PART_BYTES] for at in range(0, len(audio), PART_BYTES)]
        for number, data in enumerate(pieces):
            await node.jobs.upload(job, Part(f"{job}{number}", "u", number, data), "p")
        request = msgspec.structs.replace(accepted(SOUND, keep_audio_ms=60_000), parts=len(pieces))
        assert ((await node.jobs.submit(job, request)).status, len(pieces)) == (200, 3)
        for start, end in ((0, len(audio)), (5, 6), (PART_BYTES - 1, PART_BYTES + 1), (PART_BYTES, 2 * PART_BYTES)):
            read = [part async for part in node.jobs.audio(job, start, end)]
            assert b"".join(read) == audio[start:end]
            assert max(map(len, read)) <= PART_BYTES
        assert (await node.jobs.picture(job, 30)).seconds == pytest.approx(93.75)
        await until(lambda: is_completed(node, job))
        house.clock.now += 61
        await until(lambda: not list((house.directory / "pictures").iterdir()))
        assert node.jobs.view(job) is not None
        await is_not_kept(node, job)


async def test_next_node_completes_unfinished_and_unbilled_jobs(house: House) -> None:
    class Away(Books):
        async def record(self, charges: Sequence[Charge]) -> None:
            raise Unavailable("the ledger is away")

    done, undone = jobs = new_id(), new_id()
    house.ledger = Away()
    async with house.serving() as node:
        await post(node, done)
        await until(lambda: (job := node.jobs.view(done)) and job.head.state is JobState.COMPLETED)
        house.echo.open.clear()
        await post(node, undone)
        await until(lambda: house.echo.begun.count(undone) == 2)
        assert not is_completed(node, done)
    shutil.rmtree(house.tables)
    house.ledger = house.books
    house.echo.open.set()
    async with house.serving() as node:
        for job in jobs:
            await until(partial(is_completed, node, job))
            assert result(node, job) == FOUND
        billed = {(line.job, line.service.value) for line in house.books.lines}
        assert billed == {(job, service.value) for job in jobs for service in FOUND}
        await until(lambda: all(node.partitions.floor(tp(JOB_COMMANDS, job)) for job in jobs))


async def test_expired_job_is_removed(house: House) -> None:
    async with house.serving(job_keep_ms=10_000, sweep_seconds=0.02) as node:
        job = node.jobs.new_id()
        await post(node, job)
        await until(partial(is_completed, node, job))
        assert (await node.jobs.submit(job, Overdue("o", 0, 1))).status == 409
        house.clock.now += 11
        await until(lambda: node.jobs.view(job) is None)
        assert node.owners.serving(job).jobs.head(job) is None


async def recording(node: Node, job: str) -> bytes:
    async with node.jobs.recording(job) as file:
        return os.pread(file, 100, 0)


async def test_kept_recording_survives_restart_until_expiry(house: House) -> None:
    async with house.serving() as node:
        job, other = node.jobs.new_id(), node.jobs.new_id()
        await post(node, job, 10_000)
        assert await recording(node, job) == b"".join(PARTS)
        await until(partial(is_completed, node, job))
        await until(lambda: not list(node.job_workload.runner.spool.directory.iterdir()))
        await post(node, other)
        await until(partial(is_completed, node, other))
        await is_not_kept(node, other)
        # Neither counts among the project's open jobs.
        assert all(owner.jobs.projects.count("p") == 0 for owner in node.owners)
    shutil.rmtree(house.tables)
    async with house.serving(sweep_seconds=0.02) as node:
        assert await recording(node, job) == b"".join(PARTS)
        house.clock.now += 11
        await until(lambda: (view := node.jobs.view(job)) and not view.head.keeps_audio)
        await is_not_kept(node, job)
        assert result(node, job) == FOUND
        await until(lambda: (node.partitions.floor(tp(JOB_COMMANDS, job)) or 0) >= len(PARTS))


async def test_rejected_part_raises_unavailable(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    node = house.node()
    with pytest.raises(Unavailable, match="is another node's"):
        await node.jobs.upload(new_id(), Part("c", "u", 0, b"data"), "p")
    await node.backend.close()
    async with house.serving() as node:
        monkeypatch.setattr(log_of(node)._writer, "_limit", 10)
        with pytest.raises(Unavailable, match="queue is full"):
            await node.jobs.upload(new_id(), Part("c", "u", 0, b"data"), "p")
