"""Pictures of recordings of jobs: made once, a few at a time, in turn by project, and gone with what they are of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
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
        self, source: BinaryIO, media: Media, longest_s: int = 86_400, block_samples: int | None = None
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


def tell(directory: Path, story: Callable[[World], Any], most_bytes: int = 1 << 20) -> None:
    async def told() -> None:
        world = World(directory, most_bytes)
        world.pictures.start()
        try:
            await story(world)
        finally:
            world.open.set()
            await world.pictures.stop()
        assert world.files() == 0
        assert world.recordings.held == []

    asyncio.run(told())


def test_a_picture_is_made_once_for_all_who_ask(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        found = await asyncio.gather(*(world.get("a") for _ in range(50)))
        assert world.opened == 1
        assert {one.seconds for one in found} == {1.0}
        assert len(await found[0].spectrogram(0, 1, 10)) == 640
        assert len(await found[0].waveform(0, 10, 20)) == 20

    tell(tmp_path, story)


def test_fifty_pictures_are_made_a_few_at_a_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        asked = [world.get(f"{project}-{n}", project) for n in range(10) for project in "abcde"]
        assert {one.seconds for one in await asyncio.gather(*asked)} == {1.0}
        assert world.recordings.most == MAKERS

    tell(tmp_path, story)


def test_projects_have_their_turns(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.open.clear()
        asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(10)]
        await until(lambda: len(world.recordings.held) == MAKERS)
        asked.append(asyncio.create_task(world.get("b", "b")))
        await asyncio.sleep(0.01)
        world.open.set()
        await asyncio.gather(*asked)
        assert world.recordings.order.index("b") <= MAKERS + 1

    tell(tmp_path, story)


def test_a_project_waits_for_some_alone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.open.clear()
        asked = [asyncio.create_task(world.get(f"a{n}", "a")) for n in range(pictures.MOST_OF_PROJECT)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="16 pictures already"):
            await world.get("one more", "a")
        other = asyncio.create_task(world.get("b", "b"))
        world.open.set()
        await asyncio.gather(other, *asked)
        await world.get("one more", "a")

    tell(tmp_path, story)


def test_who_has_waited_long_enough_asks_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.open.clear()
        with pytest.raises(Unavailable, match="being drawn"):
            await world.get("a", wait_s=0.01)
        world.open.set()
        assert (await world.get("a")).seconds == 1.0
        assert world.opened == 1

    tell(tmp_path, story)


def test_who_hangs_up_stops_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.open.clear()
        gone = asyncio.create_task(world.get("a"))
        await until(lambda: world.opened == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        world.open.set()
        await world.get("a")
        assert world.opened == 1

    tell(tmp_path, story)


def test_a_job_that_is_removed_while_its_picture_is_made(tmp_path: Path) -> None:
    async def story(world: World) -> None:
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

    tell(tmp_path, story)


def test_what_is_read_stays_readable_when_it_is_removed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        held = await world.get("a")
        world.pictures.drop("a")
        assert world.files() == 0
        assert any(await held.spectrogram(0, 1, 4))

    tell(tmp_path, story)


def test_those_that_were_used_last_are_kept(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for job in ("a", "b", "a", "c"):
            await world.get(job)
        assert (world.opened, world.files()) == (3, 2)
        await world.get("a")
        assert world.opened == 3
        await world.get("b")
        assert world.opened == 4

    tell(tmp_path, story, most_bytes=2 * 50 * picture.COLUMN_BYTES)


def test_audio_that_is_kept_no_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.get("a")
        await world.get("b")
        world.pictures.drop_unless(lambda job: job == "b")
        assert world.files() == 1
        await world.get("b")
        assert world.opened == 2

    tell(tmp_path, story)


def test_what_cannot_be_drawn_is_tried_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.recordings.files["a"] = b"no audio"
        for _ in range(3):
            with pytest.raises(AudioError):
                await world.get("a")
        assert world.opened == 1

    tell(tmp_path, story)


def test_what_breaks_off_is_drawn_to_there(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.recordings.files["a"] = WAV
        breaking = mock.patch.object(decode.AudioFile, "blocks", broken)
        with breaking:
            assert (await world.get("a")).seconds == pytest.approx(0.1)

    def broken(audio: AudioFile, cpu_seconds: float = 0.0) -> Iterator[Any]:
        yield next(audio.unlimited)
        raise AudioError("the audio is damaged")

    tell(tmp_path, story)


def test_what_passes_is_tried_again(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.recordings.failure = Unavailable("the log does not answer")
        with pytest.raises(Unavailable):
            await world.get("a")
        world.recordings.failure = None
        assert (await world.get("a")).seconds == 1.0

    tell(tmp_path, story)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        full = mock.patch.object(pictures, "draw", side_effect=OSError(28, "No space left on device"))
        with full, pytest.raises(Unavailable, match="No space left"):
            await world.get("a")
        assert (await world.get("a")).seconds == 1.0

    tell(tmp_path, story)


def test_what_a_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "7.picture").write_bytes(b"old")

    async def story(world: World) -> None:
        assert world.files() == 0

    tell(tmp_path, story)


def test_a_recording_that_kills_its_decoder(tmp_path: Path) -> None:
    pool = DecoderPool(command=COMMAND)

    async def story(world: World) -> None:
        made = JobPictures(world.recordings, pool.open_in_background, world.directory)  # type: ignore[arg-type]
        world.recordings.files["bad"] = encoded(noise(16_000), CRASH)
        for _ in range(2):
            with pytest.raises(AudioError, match="its decoder ended"):
                await made.picture("bad", view(), 60)
        assert world.recordings.order == ["bad"]
        assert (await made.picture("good", view(), 60)).seconds == 1.0
        await made.stop()

    try:
        tell(tmp_path, story)
    finally:
        pool.stop()


def test_four_hours_take_no_memory(tmp_path: Path) -> None:
    """An hour is decoded in blocks and mapped, never held: what is read of it is a picture's worth."""

    def hours(source: BinaryIO, media: Media, longest_s: int = 0, block_samples: int | None = None) -> AudioFile:
        block = noise(100 * 16_000)
        return AudioFile(16_000, 1, iter([block] * 144), 86_400)

    async def story(world: World) -> None:
        long = JobPictures(world.recordings, hours, world.directory)  # type: ignore[arg-type]
        found = await long.picture("long", view(), 60)
        assert found.seconds == 4 * 3600
        assert len(await found.spectrogram(0, found.seconds, 2048)) == 64 * 2048
        assert len(await found.waveform(0, 8192, 352)) == 2 * 8182
        long.drop("long")
        await long.stop()

    tell(tmp_path, story)
