"""Finds the sound events of a recording: workers decode it and score segments, and windows leave in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import numpy as np

from streams.audio.analysis import WindowJoiner
from streams.audio.decode import MAX_FILE_S
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.models.own_sounds import packed_columns, points, widths
from streams.models.protocol import Floats
from streams.services.service import RunSummary, ServiceRun
from streams.workers.messages import RecordingEnd, Segment, SegmentScores
from streams.workers.process import LONGEST_FAULT
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers
from topics import media
from topics.errors import AudioError, EngineError, Unavailable
from topics.hearing import STANDS_IN, model_with
from topics.jobs import payloads
from topics.jobs.records import PORTION_BYTES

T = TypeVar("T")

#: Windows of one portion; fewer if a model has very many tags.
PORTION_WINDOWS: Final = 1024
#: Recordings analysed at the same time, so that a short one need not wait for long ones.
MAX_RECORDINGS: Final = 4
#: Workers of one recording at most; recordings that are analysed at the same time share them. Each decodes all of it.
MOST_BESIDE: Final = 16
#: Segments asked for ahead, besides one per worker.
SEGMENTS_AHEAD: Final = 2
#: Long windows of the longest recording, one a second.
MOST_WINDOWS: Final = MAX_FILE_S + 1


class SoundService:
    """Scores recordings with the models their jobs were accepted with, several at a time. Loop only."""

    def __init__(self, models: LoadedModels, workers: Workers) -> None:
        self.models = models
        self._workers = workers
        self.limit = MAX_RECORDINGS
        self._running = 0
        self._threads = ThreadPoolExecutor(self.limit, "sound")

    async def close(self) -> None:
        """Shut down the threads; no run may be left."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def perform(self, run: ServiceRun) -> RunSummary:
        """Score a job's recording; if the audio breaks, emit the windows before the break.

        Raises:
            EngineError: the model is not loaded here, or failed.
            AudioError: the recording cannot be read, or only in part.
            Unavailable: the log does not return the audio or accept a portion, or the file cannot be read from disk.
        """
        path = await run.audio()
        model = (await self._in(self.models.engine, run.accepted.model)).manifest
        self._running += 1
        slots: list[WorkerSlot] = []
        try:
            count = max(1, min(self._workers.count, MOST_BESIDE) // self._running)
            slots.extend(self._workers.open_slot(path.open("rb"), run.accepted.project) for _ in range(count))
            end = await self._analyse(run, model, slots)
        except OSError as error:
            raise Unavailable(f"the spool cannot be read: {error.strerror}") from error
        finally:
            self._running -= 1
            for slot in slots:
                self._workers.close_slot(slot)
        if end.fault is not None:
            raise AudioError(end.fault[:LONGEST_FAULT])
        warning = end.warning and end.warning[:LONGEST_FAULT]
        stands_in = f"heard by {model.name}: {STANDS_IN}" if run.accepted.hearing.stands_in else None
        warnings = tuple(one for one in (warning, stands_in) if one is not None)
        return RunSummary(model.model_id, end.audio_ms, warnings, end.silence_ms)

    async def _analyse(self, run: ServiceRun, model: Manifest, slots: Sequence[WorkerSlot]) -> RecordingEnd:
        """Have each worker score its share of the segments, in turn, and emit scored windows in order."""
        accepted = run.accepted
        tags, kept = widths(model, accepted.hearing)
        width = tags + kept
        portion_windows = max(1, min(PORTION_WINDOWS, PORTION_BYTES // width))
        request = Segment(0, media.parse(accepted.source.content_type), model.model_id, accepted.hearing)
        pending: deque[asyncio.Task[SegmentScores]] = deque()
        joiner = WindowJoiner(kept)
        #: Scores of windows not in a portion yet.
        ready: list[Floats] = []
        share, number = 0.0, 0
        try:
            while True:
                while len(pending) < len(slots) + SEGMENTS_AHEAD:
                    segment = msgspec.structs.replace(request, number=number)
                    scoring = self._workers.score(slots[number % len(slots)], accepted.project, segment)
                    pending.append(asyncio.create_task(scoring))
                    number += 1
                answer = await pending.popleft()
                if answer.end is not None:
                    break
                share = answer.share
                ready += joiner.feed(np.frombuffer(answer.scores or b"", np.float32).reshape(-1, width))
                if len(ready) >= portion_windows:
                    await self._emit(run, model, joiner.next_window - len(ready), ready, share)
                    ready = []
                if joiner.next_window > MOST_WINDOWS:
                    raise EngineError("the workers give more windows than a recording has")
            ready += joiner.finish(whole=answer.end.fault is None)
            if ready:
                await self._emit(run, model, joiner.next_window - len(ready), ready, share)
            return answer.end
        finally:
            for task in pending:
                # The first segment's error was raised. Retrieve the others', so that asyncio does not report them.
                if not task.cancel():
                    task.exception()

    async def _emit(self, run: ServiceRun, model: Manifest, first: int, scores: list[Floats], share: float) -> None:
        hearing = run.accepted.hearing
        tag_points = points(model, hearing, recording=True)
        packed, embeddings = await self._in(lambda: packed_columns(np.stack(scores), tag_points))
        name = model_with(model.model_id, hearing.sounds)
        await run.emit(payloads.encode(payloads.Sounds(first, name, len(tag_points), packed, embeddings)), share)

    def _in(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
