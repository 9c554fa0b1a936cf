"""Sound events of a whole recording: one thread reads ahead, others score, and windows are emitted in order."""

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

from streams.audio.analysis import PatchAverager, WindowJoiner, score_windows
from streams.audio.decode import OpenFile
from streams.audio.windows import AnalysisWindow, WindowCutter
from streams.models.loaded_models import LoadedModels
from streams.models.packing import pack
from streams.models.protocol import Floats, SoundEngine
from streams.services.priority import lower_priority
from streams.services.service import RunSummary, ServiceRun
from streams.sessions.threads import LoopThreads
from topics import media
from topics.errors import AudioError, Unavailable
from topics.geometry import SESSIONS
from topics.jobs import payloads
from topics.jobs.records import PORTION_BYTES
from topics.media import Media

T = TypeVar("T")

#: Windows of one portion; fewer where a model has very many tags.
PORTION_WINDOWS: Final = 1024
#: Windows that a thread scores at a time: enough that the hand-over costs nothing.
BATCH_WINDOWS: Final = 32
#: Recordings that are analysed side by side, so that a short one need not wait for long ones.
MAX_RECORDINGS: Final = 4
#: Batches of one recording that are read ahead, besides one for each scoring thread: some 800 KB each.
BATCHES_AHEAD: Final = 2


class WindowReader:
    """Reads a file as windows of a session that are not scored yet; the file is opened with the first batch.

    Any thread.
    """

    def __init__(self, path: Path, declared: Media, engine: SoundEngine, open_file: OpenFile) -> None:
        self.audio_ms = 0
        #: Why nothing after the last window can be read.
        self.fault: str | None = None
        #: That the file says it is longer than it is.
        self.shortfall: str | None = None
        self._path = path
        self._declared = declared
        self._open_file = open_file
        self._front = engine.manifest.input
        self._share_read = 0.0
        self._remaining = self._windows()
        self._lock = threading.Lock()

    def batch(self) -> tuple[list[AnalysisWindow], float]:
        """Return the next windows (none at the end) and the share of the file that was read for them, 0 to 1.

        Raises:
            EngineError: the model's patches do not fit the windows.
            Unavailable: the disk does not give the file.
        """
        with self._lock:
            try:
                return list(islice(self._remaining, BATCH_WINDOWS)), self._share_read
            except OSError as error:
                raise Unavailable(f"the spool cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Wait until no thread reads the file, and close it; no more windows follow."""
        with self._lock:
            self._remaining.close()

    def _windows(self) -> Generator[AnalysisWindow, None, None]:
        with self._path.open("rb") as file:
            try:
                audio = self._open_file(file, self._declared)
            except AudioError as error:
                self.fault = str(error)
                return
            cutter = WindowCutter(self._front, SESSIONS, audio.rate)
            size = self._path.stat().st_size
            with audio:
                try:
                    for samples in audio.blocks():
                        self._share_read = audio.tell() / size
                        yield from cutter.feed(samples)
                        self.audio_ms = cutter.position * 1000 // audio.rate
                except AudioError as error:
                    self.fault = audio.fault(error)
                    return
            self.shortfall = audio.shortfall
            yield from cutter.finish()


class SoundService:
    """Scores recordings with the models that their jobs were accepted with, several side by side. Loop only."""

    def __init__(self, models: LoadedModels, workers: int, open_file: OpenFile) -> None:
        """Score on `workers` threads, however many recordings there are, in turn by project; `open_file` opens them."""
        self.models = models
        self._open_file = open_file
        self.limit = MAX_RECORDINGS
        self._ahead = workers + BATCHES_AHEAD
        self._readers = ThreadPoolExecutor(self.limit, "sound-reading")
        self._scorers = LoopThreads(workers, "sound-scoring", lower_priority)

    async def close(self) -> None:
        """End the threads, once no run is left."""
        await asyncio.to_thread(self._readers.shutdown, cancel_futures=True)
        await self._scorers.stop()

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Score a job's recording; where the audio breaks, the windows before the break are emitted.

        Raises:
            EngineError: the model is not here, or fails.
            AudioError: the recording cannot be read, or not to its end.
            Unavailable: the log does not give the audio or take a portion, or the disk does not give the file.
        """
        path = await run.audio()
        engine = await self._in(self.models.engine, run.accepted.model)
        reader = WindowReader(path, media.parse(run.accepted.source.content_type), engine, self._open_file)
        try:
            await self._analyse(run, engine, reader)
        finally:
            self._readers.submit(reader.close)
        if reader.fault is not None:
            raise AudioError(reader.fault)
        warnings = () if reader.shortfall is None else (reader.shortfall,)
        return RunSummary(engine.manifest.model_id, reader.audio_ms, warnings)

    async def _analyse(self, run: ServiceRun, engine: SoundEngine, reader: WindowReader) -> None:
        """Keep the threads busy with the next batches, and emit scored windows in order."""
        self._scorers.start()
        portion_windows = max(1, min(PORTION_WINDOWS, PORTION_BYTES // len(engine.manifest.tags)))
        pending: deque[tuple[asyncio.Future[list[AnalysisWindow]], float]] = deque()
        averager, joiner = PatchAverager(), WindowJoiner()
        #: Scores of windows that no portion holds yet.
        ready: list[Floats] = []
        share, more = 0.0, True
        try:
            while more or pending:
                if more:
                    windows, share_read = await self._in(reader.batch)
                    more = bool(windows)
                    scoring = self._scorers.run(run.accepted.project, score_windows, engine, windows)
                    pending.append((scoring, share_read))
                while pending and (not more or len(pending) >= self._ahead or pending[0][0].done()):
                    scoring, share = pending.popleft()
                    ready += joiner.feed([averager.scores(window) for window in await scoring])
                    if len(ready) >= portion_windows:
                        await self._emit(run, engine, joiner.next_window - len(ready), ready, share)
                        ready = []
            ready += joiner.finish(whole=reader.fault is None)
            if ready:
                await self._emit(run, engine, joiner.next_window - len(ready), ready, share)
        finally:
            for scoring, _ in pending:
                # The first batch's error was raised; those of later batches are read, lest asyncio reports them.
                _ = scoring.cancel() or scoring.exception()

    async def _emit(self, run: ServiceRun, engine: SoundEngine, first: int, scores: list[Floats], share: float) -> None:
        manifest = engine.manifest
        packed = await self._in(_pack, engine, scores)
        portion = payloads.Sounds(first, manifest.model_id, len(manifest.tags), packed)
        await run.emit(payloads.encode(portion), share)

    def _in(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)


def _pack(engine: SoundEngine, scores: list[Floats]) -> bytes:
    return pack(np.stack(scores), engine.manifest.points)
