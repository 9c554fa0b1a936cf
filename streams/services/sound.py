"""Finds the sound events of a recording: a thread reads ahead, workers score segments, windows leave in order."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np

from streams.audio.analysis import NOTHING, WindowJoiner
from streams.audio.decode import OpenFile
from streams.audio.resample import Resampler
from streams.audio.windows import WindowGrid
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.models.own_sounds import packed_columns, points, widths
from streams.models.protocol import Floats
from streams.services.service import RunSummary, ServiceRun
from streams.workers.messages import AUDIO_BYTES, Segment
from streams.workers.workers import Workers
from topics import media
from topics.errors import AudioError, Unavailable
from topics.geometry import SESSIONS
from topics.hearing import STANDS_IN, Hearing, model_with
from topics.jobs import payloads
from topics.jobs.records import PORTION_BYTES
from topics.media import Media

T = TypeVar("T")

#: Windows of one portion; fewer if a model has very many tags.
PORTION_WINDOWS: Final = 1024
#: Windows of a segment, fewer at high sample rates: enough to make the hand-over and the leading audio cheap.
SEGMENT_WINDOWS: Final = 32
#: Samples of a segment, unless a second model hears more at once; and samples of a block, over all channels.
SEGMENT_SAMPLES: Final = 1 << 18
BLOCK_SAMPLES: Final = 1 << 17
#: Recordings analysed at the same time, so that a short one need not wait for long ones.
MAX_RECORDINGS: Final = 4
#: Segments read ahead per recording, besides one per worker: up to a megabyte each.
SEGMENTS_AHEAD: Final = 2


class SegmentReader:
    """Reads a file as segments whose windows can be scored independently; opens it with the first. Any thread."""

    def __init__(
        self, path: Path, declared: Media, model: Manifest, open_file: OpenFile, hearing: Hearing = NOTHING
    ) -> None:
        self.audio_ms = 0
        #: Why reading ended early.
        self.fault: str | None = None
        #: A warning if the file claims more audio than it holds.
        self.shortfall: str | None = None
        self._path = path
        self._declared = declared
        self._open_file = open_file
        self._model = model
        self._hearing = hearing
        self._share_read = 0.0
        self._remaining = self._segments()
        self._lock = threading.Lock()

    def next(self) -> tuple[Segment, Floats, float] | None:
        """Return the next segment, its samples and the share of the file read (0 to 1); None at the end.

        Raises:
            EngineError: the model's patches do not fit the windows.
            Unavailable: the file cannot be read from disk.
        """
        with self._lock:
            try:
                segment = next(self._remaining, None)
            except OSError as error:
                raise Unavailable(f"the spool cannot be read: {error.strerror}") from error
            return None if segment is None else (*segment, self._share_read)

    def close(self) -> None:
        """Wait until no thread reads the file, then close it and end the segments."""
        with self._lock:
            self._remaining.close()

    def _segments(self) -> Generator[tuple[Segment, Floats], None, None]:
        with self._path.open("rb") as file:
            try:
                audio = self._open_file(file, self._declared, block_samples=BLOCK_SAMPLES)
            except AudioError as error:
                self.fault = str(error)
                return
            cutter = SegmentCutter(self._model, audio.rate, self._hearing)
            if cutter.largest > AUDIO_BYTES:
                # A worker would convert the samples to this rate, so the scores are the same.
                cutter = SegmentCutter(self._model, self._model.input.sample_rate, self._hearing)
            resampler = Resampler(audio.rate, cutter.rate)
            size = self._path.stat().st_size
            with audio:
                try:
                    for samples in audio.blocks():
                        self._share_read = audio.tell() / size
                        yield from cutter.feed(resampler.feed(samples))
                        # A fraction of a millisecond is audio too; 0 stands for an unknown length.
                        self.audio_ms = max(1, resampler.position * 1000 // audio.rate)
                except AudioError as error:
                    self.fault = audio.fault(error)
            if self.fault is None:
                self.shortfall = audio.shortfall
                yield from cutter.feed(resampler.finish())
            yield cutter.finish(whole=self.fault is None)


class SegmentCutter:
    """Cuts a recording into segments with all samples that their windows depend on. One thread at a time."""

    def __init__(self, model: Manifest, rate: int, hearing: Hearing = NOTHING) -> None:
        """Cut audio of `rate` Hz for a model.

        Raises:
            EngineError: the model's patches do not fit the windows.
        """
        self._model = model.model_id
        self._hearing = hearing
        self.rate = rate
        self._grid = WindowGrid(model, SESSIONS, rate, recording=True)
        # Whole blocks of a second model, so that it hears none twice.
        block = 1 if model.second is None else model.second.recording.hop_ms // SESSIONS.hop_ms
        windows = min(SEGMENT_WINDOWS, SEGMENT_SAMPLES * 1000 // (rate * SESSIONS.hop_ms))
        self._windows = max(1, windows // block) * block
        #: Bytes of the largest segment, the last one, which ends before a further one is complete.
        self.largest = 4 * (self._grid.end_of(2 * self._windows) - self._grid.first_input(self._windows))
        self._first = 0
        #: Position of the first sample held, and the samples from there.
        self._at = 0
        self._held: list[Floats] = []
        self.position = 0

    def feed(self, samples: Floats) -> Generator[tuple[Segment, Floats], None, None]:
        """Take the next samples, float32[n], and yield the segments whose windows are all complete."""
        self._held.append(samples)
        self.position += len(samples)
        while self._grid.is_complete(self._first + self._windows, self.position):
            end = self._grid.end_of(self._first + self._windows - 1)
            yield self._cut(self._grid.first_input(self._first), end)
            self._first += self._windows
            self._drop(self._grid.kept_from(self._first))

    def finish(self, whole: bool) -> tuple[Segment, Floats]:
        """Return the last segment; the recording ends here or, if not `whole`, broke off."""
        segment, samples = self._cut(self._grid.first_input(self._first, self.position), self.position)
        return msgspec.structs.replace(segment, last=True, broken=not whole), samples

    def _cut(self, start: int, end: int) -> tuple[Segment, Floats]:
        samples = np.concatenate([np.empty(0, np.float32), *self._held])
        self._held = [samples]
        # A recording shorter than a window is held from its beginning and may be empty.
        start = max(start, self._at)
        samples = samples[start - self._at : end - self._at]
        segment = Segment(self._model, samples.nbytes, self.rate, start, self._first, False, hearing=self._hearing)
        return segment, samples

    def _drop(self, position: int) -> None:
        (samples,) = self._held
        self._held, self._at = [samples[position - self._at :]], position


class SoundService:
    """Scores recordings with the models their jobs were accepted with, several at a time. Loop only."""

    def __init__(self, models: LoadedModels, workers: Workers, open_file: OpenFile) -> None:
        self.models = models
        self._workers = workers
        self._open_file = open_file
        self.limit = MAX_RECORDINGS
        self._readers = ThreadPoolExecutor(self.limit, "sound-reading")

    async def close(self) -> None:
        """Shut down the threads; no run may be left."""
        await asyncio.to_thread(self._readers.shutdown, cancel_futures=True)

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Score a job's recording; if the audio breaks, emit the windows before the break.

        Raises:
            EngineError: the model is not loaded here, or failed.
            AudioError: the recording cannot be read, or only in part.
            Unavailable: the log does not return the audio or accept a portion, or the file cannot be read from disk.
        """
        path = await run.audio()
        model = (await self._in(self.models.engine, run.accepted.model)).manifest
        declared = media.parse(run.accepted.source.content_type)
        reader = SegmentReader(path, declared, model, self._open_file, run.accepted.hearing)
        try:
            await self._analyse(run, model, reader)
        finally:
            self._readers.submit(reader.close)
        if reader.fault is not None:
            raise AudioError(reader.fault)
        stands_in = f"heard by {model.name}: {STANDS_IN}" if run.accepted.hearing.stands_in else None
        warnings = tuple(warning for warning in (reader.shortfall, stands_in) if warning is not None)
        return RunSummary(model.model_id, reader.audio_ms, warnings)

    async def _analyse(self, run: ServiceRun, model: Manifest, reader: SegmentReader) -> None:
        """Keep the workers busy with the next segments, and emit scored windows in order."""
        tags, kept = widths(model, run.accepted.hearing)
        width = tags + kept
        portion_windows = max(1, min(PORTION_WINDOWS, PORTION_BYTES // width))
        ahead = self._workers.count + SEGMENTS_AHEAD
        pending: deque[tuple[asyncio.Task[bytes], float]] = deque()
        joiner = WindowJoiner(kept)
        #: Scores of windows not in a portion yet.
        ready: list[Floats] = []
        share, more = 0.0, True
        try:
            while more or pending:
                if more:
                    segment = await self._in(reader.next)
                    more = segment is not None
                    if segment is not None:
                        scoring = self._workers.score(run.accepted.project, *segment[:2])
                        pending.append((asyncio.create_task(scoring), segment[2]))
                while pending and (not more or len(pending) >= ahead or pending[0][0].done()):
                    task, share = pending.popleft()
                    ready += joiner.feed(np.frombuffer(await task, np.float32).reshape(-1, width))
                    if len(ready) >= portion_windows:
                        await self._emit(run, model, joiner.next_window - len(ready), ready, share)
                        ready = []
            ready += joiner.finish(whole=reader.fault is None)
            if ready:
                await self._emit(run, model, joiner.next_window - len(ready), ready, share)
        finally:
            for task, _ in pending:
                # The first segment's error was raised. Retrieve the others', so that asyncio does not report them.
                if not task.cancel():
                    task.exception()

    async def _emit(self, run: ServiceRun, model: Manifest, first: int, scores: list[Floats], share: float) -> None:
        hearing = run.accepted.hearing
        tag_points = points(model, hearing, recording=True)
        packed, looks = await self._in(lambda: packed_columns(np.stack(scores), tag_points))
        name = model_with(model.model_id, hearing.sounds)
        await run.emit(payloads.encode(payloads.Sounds(first, name, len(tag_points), packed, looks)), share)

    def _in(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)
