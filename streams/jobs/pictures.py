"""Pictures of job recordings: drawn on first request, kept on this node's disk while there is room."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
import structlog

from streams.audio import picture
from streams.audio.decode import AudioFile, OpenFile
from streams.audio.picture import Bytes, PictureWriter
from streams.jobs.recording import JobRecordings
from streams.quota import SharedQuota
from topics import keys, media
from topics.errors import AudioError, Unavailable
from topics.ports.jobs import JobView

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

SUFFIX: Final = ".picture"
#: Maximum number of concurrent drawings.
MAKERS: Final = 2
#: Maximum number of concurrent reads.
READERS: Final = 2
#: Maximum number of one project's drawings, including waiting ones.
MOST_OF_PROJECT: Final = 16
#: Maximum number of pictures kept, including recordings that cannot be drawn.
MOST_PICTURES: Final = 1024
#: Seconds after which an unfinished drawing is abandoned.
STOP_SECONDS: Final = 5.0
#: CPU time for one picture: a day at 48 kHz takes a tenth, but some megabytes can hold hours of sixteen channels.
CPU_SECONDS: Final = 600.0


class JobPicture:
    """Implements `topics.ports.pictures.Picture`: the columns in a file, read on demand. Loop only."""

    def __init__(self, path: Path, seconds: float, threads: ThreadPoolExecutor) -> None:
        """Open a file, to be read in `threads`; it stays readable here after it is deleted.

        Raises:
            OSError: it cannot be opened.
        """
        self.seconds = seconds
        self._threads = threads
        self._columns: Bytes = np.memmap(path, np.uint8, "r").reshape(-1, picture.COLUMN_BYTES)

    async def spectrogram(self, start_s: float, end_s: float, columns: int) -> bytes:
        return await self._read(picture.spectrogram, self._columns, start_s, end_s, columns)

    async def waveform(self, first: int, count: int, steps: int) -> list[int]:
        """Return the least and greatest sample of at most `count` parts of `steps` steps each."""
        numbers: list[int] = (await self._read(picture.waveform, self._columns, first, count, steps)).tolist()
        return numbers

    def _read(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


class _Entry(msgspec.Struct, eq=False):
    path: Path
    project: str
    #: Returns the length in seconds.
    making: asyncio.Task[float]
    #: Set when nobody needs it any more.
    stopped: threading.Event

    @property
    def seconds(self) -> float | None:
        """Length of a finished picture; None if there is none."""
        done = self.making.done() and not self.making.cancelled() and self.making.exception() is None
        return self.making.result() if done else None


class JobPictures:
    """Draws pictures, a few at a time and in turn by project, and keeps the most recently used. Loop only."""

    def __init__(
        self,
        recordings: JobRecordings,
        open_file: OpenFile,
        directory: Path,
        check_room: Callable[[int], None],
        most_bytes: int,
    ) -> None:
        """Draw `recordings` opened by `open_file`; no other process may use `directory`.

        Threads call `check_room` with the number of bytes before they write them.
        """
        self._recordings = recordings
        self._open_file = open_file
        self._directory = directory
        self._check_room = check_room
        self._most_bytes = most_bytes
        #: Most recently used last.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._quota = SharedQuota(MAKERS)
        self._numbers = count()
        self._threads = ThreadPoolExecutor(MAKERS, "pictures")
        self._readers = ThreadPoolExecutor(READERS, "picture-reading")

    def start(self) -> None:
        """Create the directory and delete an earlier process's pictures; they are drawn again on demand."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.glob(f"*{SUFFIX}"):
            path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Stop drawing; wait at most `STOP_SECONDS`."""
        making = [entry.making for entry in self._entries.values()]
        for job in list(self._entries):
            self.drop(job)
        if making:
            # The rest of the node must stop too, even if a decoder hangs.
            await asyncio.wait(making, timeout=STOP_SECONDS)
        for threads in (self._threads, self._readers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def picture(self, job: str, view: JobView, wait_s: float) -> JobPicture:
        """Return the picture of a job's recording; if the audio breaks off, of the part before the break.

        Raises:
            AudioError: nothing can be decoded, or the log no longer holds the audio.
            Unavailable: it is not ready within `wait_s` seconds, the project waits for too many, the log or disk does
                not answer, or the disk has no room for it.
        """
        entry = self._entries.get(job) or self._begin(job, view)
        self._entries.move_to_end(job)
        done, _ = await asyncio.wait({entry.making}, timeout=wait_s)
        if not done or entry.making.cancelled():
            raise Unavailable("the picture of the recording is being drawn")
        try:
            return JobPicture(entry.path, entry.making.result(), self._readers)
        except OSError as error:
            raise Unavailable(f"the picture cannot be read: {error.strerror}") from error

    def drop(self, job: str) -> None:
        """Remove the picture of a job, if there is one."""
        entry = self._entries.pop(job, None)
        if entry is not None:
            entry.stopped.set()
            entry.making.cancel()
            if entry.making.done():
                entry.path.unlink(missing_ok=True)

    def drop_unless(self, kept: Callable[[str], bool]) -> None:
        """Remove the pictures of jobs whose audio is no longer kept."""
        for job in list(self._entries):
            if not kept(job):
                self.drop(job)

    def _begin(self, job: str, view: JobView) -> _Entry:
        project = view.accepted.project
        if sum(one.project == project and not one.making.done() for one in self._entries.values()) >= MOST_OF_PROJECT:
            waiting = f"the project already has {MOST_OF_PROJECT} pictures waiting or being drawn"
            raise Unavailable(f"{waiting}, the limit; try again later", retry_after=5)
        path, stopped = self._directory / f"{next(self._numbers)}{SUFFIX}", threading.Event()
        making = asyncio.create_task(self._make(job, view, path, stopped), name=f"picture-{keys.shown(job)}")
        entry = self._entries[job] = _Entry(path, project, making, stopped)
        making.add_done_callback(lambda task: self._note(job, entry))
        return entry

    def _note(self, job: str, entry: _Entry) -> None:
        """Keep a picture or the fact that drawing failed for good; temporary failures are retried."""
        if entry.seconds is None or self._entries.get(job) is not entry:
            entry.path.unlink(missing_ok=True)
        if entry.making.cancelled() or isinstance(entry.making.exception(), Unavailable):
            if self._entries.get(job) is entry:
                del self._entries[job]
        elif (error := entry.making.exception()) is not None and not isinstance(error, AudioError):
            log.error("picture.failed", job=keys.shown(job), exc_info=error)
        self._shrink()

    def _shrink(self) -> None:
        made = {job: _bytes(entry) for job, entry in self._entries.items() if entry.making.done()}
        size = sum(made.values())
        for job, own in made.items():
            if size <= self._most_bytes and len(self._entries) <= MOST_PICTURES:
                return
            size -= own
            self.drop(job)

    async def _make(self, job: str, view: JobView, path: Path, stopped: threading.Event) -> float:
        async with self._quota.admit(view.accepted.project), self._recordings.open(job) as file:
            arguments = self._open_file, file, view.accepted.source.content_type, path, self._check_room, stopped
            drawing = asyncio.get_running_loop().run_in_executor(self._threads, draw, *arguments)
            try:
                return await asyncio.shield(drawing)
            except OSError as error:
                raise Unavailable(f"the picture cannot be drawn now: {error.strerror}", retry_after=10) from error
            except asyncio.CancelledError:
                await asyncio.gather(drawing, return_exceptions=True)
                raise


def _bytes(entry: _Entry) -> int:
    return round((entry.seconds or 0.0) * picture.RATE / picture.HOP) * picture.COLUMN_BYTES


def draw(
    open_file: OpenFile,
    file: int,
    content_type: str,
    path: Path,
    check_room: Callable[[int], None],
    stopped: threading.Event,
) -> float:
    """Draw a recording, given as a descriptor, to a file, block by block; return its length in seconds.

    Raises:
        AudioError: nothing can be decoded, or the picture is no longer wanted.
        Unavailable: no decoder is available, or the error of `check_room`.
        OSError: the recording cannot be read, or the picture cannot be written.
    """
    with open(file, "rb", closefd=False) as source, path.open("wb") as columns:

        def write(data: bytes) -> None:
            check_room(len(data))
            columns.write(data)

        audio = open_file(source, media.parse(content_type))
        writer = PictureWriter(audio.rate)
        with audio:
            _draw(audio, writer, write, stopped)
        return writer.seconds


def _draw(audio: AudioFile, writer: PictureWriter, write: Callable[[bytes], object], stopped: threading.Event) -> None:
    try:
        for block in audio.blocks(CPU_SECONDS):
            if stopped.is_set():
                raise AudioError("the picture is no longer wanted")
            write(writer.feed(block))
    except AudioError:
        if stopped.is_set() or not writer.samples:
            raise
    write(writer.finish())
