"""Pictures of recordings of jobs: made once, a few at a time, in turn by project, and gone with what they are of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import msgspec
import pytest

from streams.audio import decode, picture
from streams.audio.decode import AudioFile
from streams.decoders.pool import DecoderPool
from streams.jobs import pictures
from streams.jobs.pictures import MAKERS, JobPicture, JobPictures
from tests.attacks.faulty_decoders import COMMAND, CRASH
from tests.audio import encoded, noise
from tests.unit.streams.jobs.world import accepted
from tests.waiting import until
from topics.errors import AudioError, Unavailable
from topics.jobs.records import Source
from topics.jobs.rules import JobHead, JobState
from topics.media import Media
from topics.ports.jobs import JobView

WAV = encoded(noise(16_000))
HEAD = JobHead(JobState.COMPLETED, 1, 1, "u", keep_audio_ms=60_000)


def view(project: str = "p") -> JobView:
    source = Source("audio/wav", "wav", len(WAV), 16_000, 1)
    return JobView(msgspec.structs.replace(accepted("u", 1), project=project, source=source), HEAD)


class Recordings:
    """Recordings in files, and how many are held at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: dict[str, bytes] = {}
        self.held: list[str] = []
        self.most = 0
        self.order: list[str] = []
        self.failure: Exception | None = None

    @asynccontextmanager
    async def open(self, job: str) -> AsyncIterator[int]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
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
    """Pictures, and a door that decoding waits at."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self.recordings = Recordings(directory)
        self.open = threading.Event()
        self.open.set()
        self.opened = 0
        self.directory = directory / "pictures"
        self.pictures = JobPictures(self.recordings, self.open_file, self.directory, most_bytes)  # type: ignore[arg-type]

    def open_file(
        self,
        source: BinaryIO,
        media: Media,
        longest_s: int = 86_400,
        block_samples: int | None = None,
        owner: str | None = None,
    ) -> AudioFile:
        self.opened += 1
        audio = decode.open_file(source, media, longest_s, 1600)
        audio.unlimited = self._waiting(audio.unlimited)
        return audio

    def _waiting(self, blocks: Iterator[Any]) -> Iterator[Any]:
        for block in blocks:
            assert self.open.wait(10)
            yield block

    async def get(self, job: str, project: str = "p", wait_s: float = 10) -> JobPicture:
        return await self.pictures.picture(job, view(project), wait_s)

    def files(self) -> int:
        return len(list(self.directory.iterdir()))


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, loop: asyncio.Runner) -> Iterator[World]:
    """Pictures that take a megabyte at most, or as much as the test says; nothing is left of them."""

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


async def test_a_picture_is_made_once_for_all_who_ask(world: World) -> None:
    found = await asyncio.gather(*(world.get("a") for _ in range(50)))
    assert world.opened == 1
    assert {one.seconds for one in found} == {1.0}
    assert len(await found[0].spectrogram(0, 1, 10)) == 640
    assert len(await found[0].waveform(0, 10, 20)) == 20


async def test_fifty_pictures_are_made_a_few_at_a_time(world: World) -> None:
    asked = [world.get(f"{project}-{n}", project) for n in range(10) for project in "abcde"]
    assert {one.seconds for one in await asyncio.gather(*asked)} == {1.0}
    assert world.recordings.most == MAKERS


async def test_projects_have_their_turns(world: World) -> None:
    world.open.clear()
    asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(10)]
    await until(lambda: len(world.recordings.held) == MAKERS)
    asked.append(asyncio.create_task(world.get("b", "b")))
    await asyncio.sleep(0.01)
    world.open.set()
    await asyncio.gather(*asked)
    assert world.recordings.order.index("b") <= MAKERS + 1


async def test_a_project_waits_for_some_alone(world: World) -> None:
    world.open.clear()
    asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(pictures.MOST_OF_PROJECT)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="16 pictures already"):
        await world.get("one more", "a")
    other = asyncio.create_task(world.get("b", "b"))
    world.open.set()
    await asyncio.gather(other, *asked)
    await world.get("one more", "a")


async def test_who_has_waited_long_enough_asks_again(world: World) -> None:
    world.open.clear()
    with pytest.raises(Unavailable, match="being drawn"):
        await world.get("a", wait_s=0.01)
    world.open.set()
    assert (await world.get("a")).seconds == 1.0
    assert world.opened == 1


async def test_who_hangs_up_stops_nothing(world: World) -> None:
    world.open.clear()
    gone = asyncio.create_task(world.get("a"))
    await until(lambda: world.opened == 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    world.open.set()
    await world.get("a")
    assert world.opened == 1


async def test_a_job_that_is_removed_while_its_picture_is_made(world: World) -> None:
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
    # The same id with other audio, as a job that takes over an Idempotency-Key.
    world.recordings.files["a"] = encoded(noise(32_000))
    assert (await world.get("a")).seconds == 2.0


async def test_what_is_read_stays_readable_when_it_is_removed(world: World) -> None:
    held = await world.get("a")
    world.pictures.drop("a")
    assert world.files() == 0
    assert any(await held.spectrogram(0, 1, 4))


@pytest.mark.parametrize("world", [2 * 50 * picture.COLUMN_BYTES], indirect=True)
async def test_those_that_were_used_last_are_kept(world: World) -> None:
    for job in ("a", "b", "a", "c"):
        await world.get(job)
    assert (world.opened, world.files()) == (3, 2)
    await world.get("a")
    assert world.opened == 3
    await world.get("b")
    assert world.opened == 4


async def test_audio_that_is_kept_no_more(world: World) -> None:
    await world.get("a")
    await world.get("b")
    world.pictures.drop_unless(lambda job: job == "b")
    assert world.files() == 1
    await world.get("b")
    assert world.opened == 2


async def test_what_cannot_be_drawn_is_tried_once(world: World) -> None:
    world.recordings.files["a"] = b"no audio"
    for _ in range(3):
        with pytest.raises(AudioError):
            await world.get("a")
    assert world.opened == 1


async def test_what_breaks_off_is_drawn_to_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(audio: AudioFile, cpu_seconds: float = 0.0) -> Iterator[Any]:
        yield next(audio.unlimited)
        raise AudioError("the audio is damaged")

    monkeypatch.setattr(decode.AudioFile, "blocks", broken)
    assert (await world.get("a")).seconds == pytest.approx(0.1)


async def test_what_passes_is_tried_again(world: World) -> None:
    world.recordings.failure = Unavailable("the log does not answer")
    with pytest.raises(Unavailable):
        await world.get("a")
    world.recordings.failure = None
    assert (await world.get("a")).seconds == 1.0


async def test_a_disk_that_is_full(world: World) -> None:
    full = mock.patch.object(pictures, "draw", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(Unavailable, match="No space left"):
        await world.get("a")
    assert (await world.get("a")).seconds == 1.0


async def test_what_a_process_left_is_cleared(world: World) -> None:
    (world.directory / "7.picture").write_bytes(b"old")
    following = JobPictures(world.recordings, world.open_file, world.directory)  # type: ignore[arg-type]
    following.start()
    assert world.files() == 0
    await following.stop()


async def test_a_recording_that_kills_its_decoder(world: World) -> None:
    pool = DecoderPool(command=COMMAND)
    made = JobPictures(world.recordings, pool.open_in_background, world.directory)  # type: ignore[arg-type]
    world.recordings.files["bad"] = encoded(noise(16_000), CRASH)
    for _ in range(2):
        with pytest.raises(AudioError, match="its decoder ended"):
            await made.picture("bad", view(), 60)
    assert world.recordings.order == ["bad"]
    assert (await made.picture("good", view(), 60)).seconds == 1.0
    await made.stop()
    pool.stop()


async def test_an_hour_takes_no_memory(world: World) -> None:
    """An hour is decoded in blocks and mapped, never held: what is read of it is a picture's worth."""

    def hours(
        source: BinaryIO, media: Media, longest_s: int = 0, block_samples: int | None = None, owner: str | None = None
    ) -> AudioFile:
        block = noise(100 * 16_000)
        return AudioFile(16_000, 1, iter([block] * 36), 86_400)

    long = JobPictures(world.recordings, hours, world.directory)  # type: ignore[arg-type]
    found = await long.picture("long", view(), 60)
    assert found.seconds == 3600
    assert len(await found.spectrogram(0, found.seconds, 2048)) == 64 * 2048
    assert len(await found.waveform(0, 8192, 88)) == 2 * 8182
    long.drop("long")
    await long.stop()
