"""Sound events of a whole recording: one thread reads ahead, others score, and the windows leave in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from streams.audio import decode
from streams.audio.session import AnalysisWindow, PatchAverager, WindowCutter, score_window
from streams.jobs.priority import give_way
from streams.models.loaded_models import LoadedModels
from streams.models.packing import pack
from streams.models.protocol import SoundEngine
from streams.services.performer import Done, Work
from topics import media
from topics.errors import AudioError, Unavailable
from topics.geometry import SENSE
from topics.jobs import payloads
from topics.jobs.records import PORTION_BYTES
from topics.media import Media

T = TypeVar("T")

#: Windows of one portion, fewer for models of very many tags.
PORTION_WINDOWS: Final = 1024
#: Windows that a thread scores at a time: many enough that handing them over costs nothing.
BATCH_WINDOWS: Final = 32
#: Recordings side by side, so that a short one need not wait for long ones.
RECORDINGS: Final = 4
#: Batches that are read and not scored yet, of one recording, besides one a thread: some 800 KB each.
BATCHES_AHEAD: Final = 2


class Recording:
    """A file as windows that are not scored yet; opened with the first batch."""

    def __init__(self, path: Path, declared: Media, engine: SoundEngine) -> None:
        self.audio_ms = 0
        #: Why what comes after the last window cannot be read.
        self.fault: str | None = None
        self._path = path
        self._declared = declared
        self._front = engine.manifest.input
        self._done = 0.0
        self._coming = self._windows()
        self._lock = threading.Lock()

    def batch(self) -> tuple[list[AnalysisWindow], float]:
        """Return the next windows, none at the end, and how much of the file was read for them, 0 to 1.

        Raises:
            EngineError: the model's patches do not fit the windows.
            Unavailable: the disk does not give the file.
        """
        with self._lock:
            try:
                return list(islice(self._coming, BATCH_WINDOWS)), self._done
            except OSError as error:
                raise Unavailable(f"the spool cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Close the file, once no thread reads it; then there are no more windows."""
        with self._lock:
            self._coming.close()

    def _windows(self) -> Generator[AnalysisWindow, None, None]:
        with self._path.open("rb") as file:
            try:
                audio = decode.open_file(file, self._declared)
            except AudioError as error:
                self.fault = str(error)
                return
            windows = WindowCutter(self._front, SENSE, audio.rate)
            size = self._path.stat().st_size
            try:
                for samples in audio.blocks():
                    self._done = file.tell() / size
                    yield from windows.feed(samples)
                    self.audio_ms = windows.position * 1000 // audio.rate
            except AudioError as error:
                self.fault = audio.fault(error)
                return
            yield from windows.finish()


class SoundPerformer:
    """Scores recordings with the models that they were accepted with, several side by side."""

    def __init__(self, shelf: LoadedModels, workers: int) -> None:
        """Score on `workers` threads, whatever the number of recordings."""
        self.shelf = shelf
        self.limit = RECORDINGS
        self._ahead = workers + BATCHES_AHEAD
        self._readers = ThreadPoolExecutor(self.limit, "sound-reading", give_way)
        self._scorers = ThreadPoolExecutor(workers, "sound-scoring", give_way)

    async def close(self) -> None:
        """End the threads, once nothing is performed."""
        for pool in (self._readers, self._scorers):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    async def perform(self, work: Work) -> Done:
        """See `Performer.perform`; of audio that breaks, the windows before the break are emitted.

        Raises:
            EngineError: the model is not here, or fails.
            AudioError: the recording cannot be read, to its end or at all.
        """
        path = await work.audio()
        engine = await self._in(self._readers, self.shelf.engine, work.accepted.model)
        recording = Recording(path, media.parse(work.accepted.source.content_type), engine)
        try:
            await self._analyse(work, engine, recording)
        finally:
            self._readers.submit(recording.close)
        if recording.fault is not None:
            raise AudioError(recording.fault)
        return Done(engine.manifest.model_id, recording.audio_ms)

    async def _analyse(self, work: Work, engine: SoundEngine, recording: Recording) -> None:
        """Keep the threads busy with what comes next, and emit what is scored, in order."""
        most = max(1, min(PORTION_WINDOWS, PORTION_BYTES // len(engine.manifest.tags)))
        flights: deque[tuple[asyncio.Future[list[AnalysisWindow]], float]] = deque()
        ready: list[AnalysisWindow] = []
        averager = PatchAverager()
        done, more = 0.0, True
        try:
            while more or flights:
                if more:
                    windows, read = await self._in(self._readers, recording.batch)
                    more = bool(windows)
                    flights.append((self._in(self._scorers, _scored, engine, windows), read))
                while flights and (not more or len(flights) >= self._ahead or flights[0][0].done()):
                    flight, done = flights.popleft()
                    ready += await flight
                    if len(ready) >= most:
                        await self._emit(work, engine, averager, ready, done)
                        ready = []
            if ready:
                await self._emit(work, engine, averager, ready, done)
        finally:
            for flight, _ in flights:
                # Asked for its error too, which the first one's hides.
                _ = flight.cancel() or flight.exception()

    async def _emit(
        self, work: Work, engine: SoundEngine, averager: PatchAverager, windows: list[AnalysisWindow], done: float
    ) -> None:
        known = engine.manifest
        packed = await self._in(self._readers, _packed, engine, averager, windows)
        portion = payloads.Sounds(windows[0].number, known.model_id, len(known.tags), packed)
        await work.emit(payloads.encode(portion), done)

    def _in(self, pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


def _scored(engine: SoundEngine, windows: list[AnalysisWindow]) -> list[AnalysisWindow]:
    return [score_window(engine, window) for window in windows]


def _packed(engine: SoundEngine, averager: PatchAverager, windows: list[AnalysisWindow]) -> bytes:
    return pack(np.stack([averager.add(window) for window in windows]), engine.manifest.points)
