"""Files of jobs beside the log: the audio shared by a job's runs, and pictures of recordings."""

import asyncio
import shutil
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import msgspec
import pytest

from streams.audio import decode, picture
from streams.audio.decode import AudioFile, OpenFile
from streams.jobs import pictures
from streams.jobs.pictures import MAKERS, JobPicture, JobPictures
from streams.jobs.spool import Spool
from streams.node.options import PICTURE_BYTES
from streams.processes.deaths import DEADLY
from tests.attacks.faulty_decoders import COMMAND, CRASH
from tests.audio import encoded, noise
from tests.file_pool import FilePool
from tests.unit.streams.jobs.world import JOB, accepted
from tests.waiting import turn, until
from topics.errors import AudioError, Unavailable
from topics.jobs.records import Source
from topics.jobs.rules import JobHead, JobState
from topics.media import Media
from topics.ports.jobs import JobView

#: Bytes of a job's audio, and those that must stay free on the disk.
SIZE = 6
FREE = 1 << 20


class Log:
    """Yields parts once the gate is open; then raises the given error."""

    def __init__(self, *parts: bytes, fault: Exception | None = None) -> None:
        self.parts = parts
        self.fault = fault
        self.reads = self.open = 0
        self.gate = asyncio.Event()

    async def read(self) -> AsyncGenerator[bytes, None]:
        self.reads += 1
        self.open += 1
        try:
            await self.gate.wait()
            for part in self.parts:
                yield part
            if self.fault is not None:
                raise self.fault
        finally:
            self.open -= 1


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool", FREE)
    spool.clear()
    return spool


def files(spool: Spool) -> list[Path]:
    return list(spool.directory.iterdir())


async def test_runs_share_one_download_and_last_run_deletes_it(spool: Spool) -> None:
    log = Log(b"one", b"two")
    takes = [asyncio.create_task(spool.take(JOB, run, SIZE, log.read)) for run in "abc"]
    await turn()
    log.gate.set()
    paths = set(await asyncio.gather(*takes))
    assert (log.reads, len(paths)) == (1, 1)
    assert paths.pop().read_bytes() == b"onetwo"
    for run in "aab":
        spool.give_back(JOB, run)
        assert len(files(spool)) == 1
    spool.give_back(JOB, "c")
    assert files(spool) == []
    spool.give_back(JOB, "c")


@pytest.mark.parametrize("others", ["", "b"])
async def test_download_stops_only_when_last_run_leaves(spool: Spool, others: str) -> None:
    log = Log(b"audio")
    first, *rest = (asyncio.create_task(spool.take(JOB, run, SIZE, log.read)) for run in f"a{others}")
    await turn()
    first.cancel()
    spool.give_back(JOB, "a")
    log.gate.set()
    assert [(await take).read_bytes() for take in rest] == [b"audio"] * len(rest)
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert len(files(spool)) == len(rest)


@pytest.mark.parametrize("fault", [AudioError("gone"), Unavailable("away")])
async def test_log_error_reaches_all_runs_and_next_run_retries(spool: Spool, fault: Exception) -> None:
    log = Log(b"half", fault=fault)
    log.gate.set()
    found = await asyncio.gather(*(spool.take(JOB, run, SIZE, log.read) for run in "ab"), return_exceptions=True)
    assert found == [fault, fault]
    for run in "ab":
        spool.give_back(JOB, run)
    assert files(spool) == []
    log.fault = None
    assert (await spool.take(JOB, "c", SIZE, log.read)).read_bytes() == b"half"


async def test_unwritable_spool_raises_unavailable(spool: Spool) -> None:
    log = Log(b"audio")
    taking = asyncio.create_task(spool.take(JOB, "a", SIZE, log.read))
    await turn()
    files(spool)[0].unlink()
    log.gate.set()
    with pytest.raises(Unavailable, match="spool cannot be written"):
        await taking
    assert log.open == 0, "a reader holds a lock for as long"
    spool.give_back(JOB, "a")
    spool.directory.rmdir()
    with pytest.raises(Unavailable, match="spool cannot be written"):
        await spool.take(JOB, "a", SIZE, log.read)


async def test_files_leave_room_on_the_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that would not fit is not begun, and one that no longer fits is not finished."""
    log, free = Log(b"one", b"two"), FREE + SIZE - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=free))
    with pytest.raises(Unavailable, match="must keep EARSHOT_UPLOAD_FREE_BYTES free"):
        await spool.take(JOB, "a", SIZE, log.read)
    assert (log.reads, files(spool)) == (0, [])
    free += 1
    taking = asyncio.create_task(spool.take(JOB, "a", SIZE, log.read))
    await until(lambda: log.reads == 1)
    free = FREE + 2
    log.gate.set()
    with pytest.raises(Unavailable, match="must keep EARSHOT_UPLOAD_FREE_BYTES free"):
        await taking
    assert files(spool)[0].read_bytes() == b""
    spool.give_back(JOB, "a")


async def test_file_is_not_begun_without_room_beside_those_being_filled(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files that fit one by one must not stop each other."""
    disk = FREE + 2 * SIZE - 1

    def free(_: object) -> mock.Mock:
        return mock.Mock(free=disk - sum(path.stat().st_size for path in files(spool)))

    monkeypatch.setattr(shutil, "disk_usage", free)
    first, second, rest = Log(b"one", b"two"), Log(b"red", b"sea"), asyncio.Event()

    async def halting() -> AsyncGenerator[bytes, None]:
        async for part in first.read():
            yield part
            await rest.wait()

    taking = asyncio.create_task(spool.take("first", "a", SIZE, halting))
    for written in (0, 3):
        await until(lambda: [path.stat().st_size for path in files(spool)] == [written])  # noqa: B023
        with pytest.raises(Unavailable, match="must keep EARSHOT_UPLOAD_FREE_BYTES free"):
            await spool.take("second", "b", SIZE, second.read)
        first.gate.set()
    rest.set()
    assert (await taking).read_bytes() == b"onetwo"
    spool.give_back("first", "a")
    second.gate.set()
    assert (await spool.take("second", "b", SIZE, second.read)).read_bytes() == b"redsea"


async def test_removing_a_job_is_unavailable_to_its_readers(spool: Spool) -> None:
    """Not a cancellation, which would end the reader's own request."""
    takes = [asyncio.create_task(spool.take(JOB, run, SIZE, Log().read)) for run in "ab"]
    await turn()
    spool.drop(JOB)
    ends = await asyncio.gather(*takes, return_exceptions=True)
    assert [(type(end), str(end)) for end in ends] == [(Unavailable, "the job was removed")] * 2
    assert files(spool) == []


async def test_run_that_is_cancelled_with_its_job_ends(spool: Spool) -> None:
    """Its job was removed at the same time; it would go on if that hid the cancellation."""
    run = asyncio.create_task(spool.take(JOB, "a", SIZE, Log().read))
    await turn()
    run.cancel()
    spool.drop(JOB)
    await asyncio.wait([run])
    assert run.cancelled()


async def test_resubmitted_job_gets_its_own_audio(spool: Spool) -> None:
    old, new = Log(b"old"), Log(b"new")
    old.gate.set()
    new.gate.set()
    await spool.take(JOB, "a", SIZE, old.read)
    spool.drop(JOB)
    path = await spool.take(JOB, "b", SIZE, new.read)
    spool.give_back(JOB, "a")
    assert path.read_bytes() == b"new"


def test_clear_removes_leftover_audio_from_spool(tmp_path: Path) -> None:
    (tmp_path / "left.audio").write_bytes(b"audio")
    (tmp_path / "other").write_bytes(b"not ours")
    Spool(tmp_path, FREE).clear()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


WAV = encoded(noise(16_000))
HEAD = JobHead(JobState.COMPLETED, 1, 1, "u", keep_audio_ms=60_000)


def view(project: str = "p") -> JobView:
    source = Source("audio/wav", "wav", len(WAV), 16_000, 1)
    return JobView(msgspec.structs.replace(accepted("u", 1), project=project, source=source), HEAD)


class Recordings:
    """Recordings in files, and how many are open at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: dict[str, bytes] = {}
        self.held: list[str] = []
        self.most = 0
        self.order: list[str] = []

    @asynccontextmanager
    async def open(self, job: str) -> AsyncIterator[int]:
        await turn()
        self.order.append(job)
        self.held.append(job)
        self.most = max(self.most, len(self.held))
        path = self.directory / job
        path.write_bytes(self.files.get(job, WAV))
        try:
            with path.open("rb") as file:
                yield file.fileno()
        finally:
            self.held.remove(job)


class World:
    """Pictures, and a gate that decoding waits at."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self.recordings = Recordings(directory)
        self.open = threading.Event()
        self.open.set()
        self.opened = 0
        self.directory = directory / "pictures"
        #: Bytes that pictures may still take.
        self.free = 1 << 30
        self.pictures = self.made(self.open_file, most_bytes)

    def made(self, open_file: OpenFile, most_bytes: int = PICTURE_BYTES) -> JobPictures:
        return JobPictures(self.recordings, open_file, self.directory, self.check_room, most_bytes)  # type: ignore[arg-type]

    def check_room(self, size: int) -> None:
        self.free -= size
        if self.free < 0:
            raise Unavailable("there is no room")

    def open_file(self, source: BinaryIO, media: Media, *_: Any, **__: Any) -> AudioFile:
        self.opened += 1
        audio = decode.open_file(source, media, block_samples=1600)
        audio.unlimited = self._waiting(audio.unlimited)
        return audio

    def _waiting(self, blocks: Iterator[Any]) -> Iterator[Any]:
        for block in blocks:
            assert self.open.wait(60)
            yield block

    async def get(self, job: str, project: str = "p", wait_s: float = 60) -> JobPicture:
        return await self.pictures.picture(job, view(project), wait_s)

    def files(self) -> int:
        return len(list(self.directory.iterdir()))


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, loop: asyncio.Runner) -> Iterator[World]:
    """Pictures of at most a megabyte, or the test's limit; afterwards none may remain."""

    async def start() -> World:
        made = World(tmp_path, getattr(request, "param", 1 << 20))
        made.pictures.start()
        return made

    made = loop.run(start())
    yield made
    made.open.set()
    loop.run(made.pictures.stop())
    assert made.files() == 0
    assert made.recordings.held == []


# --- pictures: rendered once, a few at a time, in turn by project, deleted with their recording ---------------------


async def test_concurrent_requests_share_one_picture(world: World) -> None:
    found = await asyncio.gather(*(world.get("a") for _ in range(50)))
    assert world.opened == 1
    assert {one.seconds for one in found} == {1.0}
    assert len(await found[0].spectrogram(0, 1, 10)) == 640
    assert len(await found[0].waveform(0, 10, 20)) == 20


async def test_concurrent_drawing_is_limited(world: World) -> None:
    asked = [world.get(f"{project}-{n}", project) for n in range(10) for project in "abcde"]
    assert {one.seconds for one in await asyncio.gather(*asked)} == {1.0}
    assert world.recordings.most == MAKERS


async def test_projects_take_turns(world: World) -> None:
    world.open.clear()
    asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(10)]
    await until(lambda: len(world.recordings.held) == MAKERS)
    asked.append(asyncio.create_task(world.get("b", "b")))
    await turn()
    world.open.set()
    await asyncio.gather(*asked)
    assert world.recordings.order.index("b") <= MAKERS + 1


async def test_project_over_its_picture_limit_is_rejected(world: World) -> None:
    world.open.clear()
    asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(pictures.MOST_OF_PROJECT)]
    await turn()
    with pytest.raises(Unavailable, match="already has 16 pictures waiting or being drawn, the limit; try again later"):
        await world.get("one more", "a")
    other = asyncio.create_task(world.get("b", "b"))
    world.open.set()
    await asyncio.gather(other, *asked)
    await world.get("one more", "a")


async def test_cancelled_or_timed_out_request_does_not_stop_drawing(world: World) -> None:
    world.open.clear()
    gone = asyncio.create_task(world.get("a"))
    await until(lambda: world.opened == 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    with pytest.raises(Unavailable, match="being drawn"):
        await world.get("a", wait_s=0.01)
    world.open.set()
    assert (await world.get("a")).seconds == 1.0
    assert world.opened == 1


async def test_removing_job_while_its_picture_is_drawn(world: World) -> None:
    world.open.clear()
    asked = asyncio.create_task(world.get("a"))
    waiting = [asyncio.create_task(world.get(name)) for name in ("b", "c")]
    await until(lambda: world.recordings.held == ["a", "b"])
    for job in ("a", "c"):
        world.pictures.drop(job)
    world.open.set()
    for task in (asked, waiting[1]):
        with pytest.raises(Unavailable):
            await task
    await waiting[0]
    await until(lambda: not world.recordings.held)
    assert world.files() == 1
    # The same id with other audio, as when a job takes over an Idempotency-Key.
    world.recordings.files["a"] = encoded(noise(32_000))
    assert (await world.get("a")).seconds == 2.0


async def test_open_picture_stays_readable_after_removal(world: World) -> None:
    held, _ = await world.get("a"), await world.get("b")
    world.pictures.drop_unless(lambda job: job == "b")
    assert world.files() == 1
    assert any(await held.spectrogram(0, 1, 4))
    await world.get("b")
    assert world.opened == 2


@pytest.mark.parametrize("world", [2 * 50 * picture.COLUMN_BYTES], indirect=True)
async def test_least_recently_used_pictures_are_evicted(world: World) -> None:
    for job in ("a", "b", "a", "c"):
        await world.get(job)
    assert (world.opened, world.files()) == (3, 2)
    await world.get("a")
    assert world.opened == 3
    await world.get("b")
    assert world.opened == 4


async def test_undecodable_audio_is_not_retried(world: World) -> None:
    world.recordings.files["a"] = b"no audio"
    for _ in range(3):
        with pytest.raises(AudioError):
            await world.get("a")
    assert world.opened == 1


async def test_damaged_audio_is_drawn_up_to_the_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(audio: AudioFile, cpu_seconds: float = 0.0) -> Iterator[Any]:
        yield next(audio.unlimited)
        raise AudioError("the audio is damaged")

    monkeypatch.setattr(decode.AudioFile, "blocks", broken)
    # The first block: whole ones of 1024 frames are mixed.
    assert (await world.get("a")).seconds == pytest.approx(0.064)


async def test_temporary_errors_are_retried(world: World) -> None:
    away = mock.patch.object(world.recordings, "open", side_effect=Unavailable("the log does not answer"))
    full = mock.patch.object(pictures, "draw", side_effect=OSError(28, "No space left on device"))
    for trouble, said in ((away, "does not answer"), (full, "No space left")):
        with trouble, pytest.raises(Unavailable, match=said):
            await world.get("a")
    assert (await world.get("a")).seconds == 1.0


async def test_pictures_leave_room_on_the_disk(world: World) -> None:
    """A picture that no longer fits is given up, and drawn once there is room."""
    world.free = 25 * picture.COLUMN_BYTES
    with pytest.raises(Unavailable, match="there is no room"):
        await world.get("a")
    assert world.files() == 0
    world.free = 1 << 20
    assert (await world.get("a")).seconds == 1.0


async def test_stop_does_not_wait_for_endless_recording(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "STOP_SECONDS", 0.05)
    world.open.clear()
    asked = asyncio.create_task(world.get("a"))
    await until(lambda: world.opened == 1)
    async with asyncio.timeout(30):
        await world.pictures.stop()
    assert world.recordings.held == ["a"]
    world.open.set()
    with pytest.raises(Unavailable):
        await asked
    await until(lambda: not world.recordings.held)


async def test_start_deletes_leftover_pictures(world: World) -> None:
    (world.directory / "7.picture").write_bytes(b"old")
    following = world.made(world.open_file)
    following.start()
    assert world.files() == 0
    await following.stop()


async def test_recording_that_kills_its_decoder_fails_once(world: World) -> None:
    pool = FilePool(COMMAND)
    made = world.made(pool.open_file)
    world.recordings.files["bad"] = encoded(noise(16_000), CRASH)
    for _ in range(2):
        with pytest.raises(AudioError, match=DEADLY):
            await made.picture("bad", view(), 60)
    assert world.recordings.order == ["bad"]
    assert (await made.picture("good", view(), 60)).seconds == 1.0
    await made.stop()
    pool.stop()


async def test_long_recording_is_drawn_in_blocks(world: World) -> None:
    """It is decoded in blocks and mapped; each read takes the memory of a picture."""

    def minutes(*_: Any, **__: Any) -> AudioFile:
        return AudioFile(16_000, 1, iter([noise(10 * 16_000)] * 36), 86_400)

    long = world.made(minutes)
    found = await long.picture("long", view(), 60)
    assert found.seconds == 360
    assert len(await found.spectrogram(0, found.seconds, 2048)) == 64 * 2048
    assert len(await found.waveform(0, 8192, 88)) == 2 * 819
    long.drop("long")
    await long.stop()
