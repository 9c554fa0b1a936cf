"""The analyser: takes accepted chunks of each session in order and writes their windows to the result topic.

The fold tells it which sessions have work; the rows say what the work is, so nothing is lost with the process. An agent
takes the sessions that are ready, and asks for one step of each (`streams/agents.py`). Decoding, framing and inference
happen in worker processes (`streams/workers`), and no partition is held while they do.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Final

import mode
import msgspec
import structlog
from faust import App

from streams.audio import pcm
from streams.audio.decode import OpenFile
from streams.audio.levels import SoundMeter
from streams.folding import retry
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.sessions.audio import AudioSource
from streams.sessions.files import DECODER_FREE, FileSessions, SessionFile
from streams.sessions.ready import ReadySessions
from streams.sessions.store import SessionStore
from streams.sessions.taps import Taps
from streams.workers.messages import Beginning
from streams.workers.messages import Scored as Analysed
from streams.workers.process import StateLost, WorkerDied
from streams.workers.workers import Workers, WorkerSession
from topics import keys, media
from topics.errors import AudioError, EarshotError, EngineError, NotOwned, Unavailable
from topics.folding import DEADLY, DEATHS
from topics.media import Media
from topics.rows import AudioRow
from topics.sessions.records import Cursor, Failed, Opened, Scored, SessionResult
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.rules import SessionHead, SessionState

log = structlog.get_logger(__name__)

STEP_CHUNKS: Final = 16
#: Seconds of a step that is taken together with those of other sessions: none of them waits for a long one, which fills
#: batches of its own.
TOGETHER_S: Final = 1
#: Chunks of a step while several projects have work: so long one waits for the steps of another.
SHARED_STEP_CHUNKS: Final = 2
#: So long after the last step of another project the threads count as shared.
SHARED_SECONDS: Final = 1.0
STEP_BYTES: Final = 2 * 1024 * 1024
#: Sessions, some 27 KiB each, whose analysis stays in memory between steps however long they pause, and such that have
#: work or had some in the last seconds. One that was closed reads its last chunks from the log again.
PROGRESS_KEPT: Final = 1024
PROGRESS_MOST: Final = 16 * PROGRESS_KEPT
PAUSE_SECONDS: Final = 2.0
TIDY_SECONDS: Final = 1.0
ATTEMPTS: Final = 3
#: In so many seconds a session is due whose worker is gone.
AGAIN_SECONDS: Final = 0.0

#: Append a result of a session to the result topic; returns once it is durable.
Emit = Callable[[str, SessionResult], Awaitable[None]]
#: The store that holds a session now; raises NotOwned when its partition is elsewhere, Unavailable while it is unready.
StoreOf = Callable[[str], SessionStore]


class ActiveSession(msgspec.Struct):
    """What this process holds in memory of a session that was analysed lately."""

    id: str
    project: str
    #: The manifest of the model that scores the session.
    model: Manifest | None = None
    #: The session's state in a worker, and the file that it is read from.
    analysis: WorkerSession | None = None
    file: SessionFile | None = None
    #: The `keep` of the last result that was emitted: chunk rows below it are dropped already.
    dropped: int = 0
    ended: bool = False
    #: Attempts in a row that failed, and those of them that count against the session: not for want of the service.
    retries: int = 0
    failures: int = 0
    #: How far it was when it last failed so, or its worker died: steps that lead there again are no success.
    failed_at: tuple[int, int] | None = None
    #: Workers that have died while they had a step of it, without its getting further.
    deaths: int = 0
    #: When its last step began, monotonic.
    stepped: float = 0.0


class Analyser(mode.Service):  # type: ignore[misc]
    """Runs the analysis of all sessions of a node. Loop only."""

    mundane_level = "debug"

    def __init__(
        self,
        app: App,
        models: LoadedModels,
        audio: AudioSource,
        store_of: StoreOf,
        emit: Emit,
        workers: Workers,
        spool: Path,
        open_file: OpenFile,
    ) -> None:
        super().__init__()
        self.models = models
        self.audio = audio
        self.store_of = store_of
        self.emit = emit
        self.workers = workers
        self.taps = Taps()
        # Most of a step's time is spent waiting for the log.
        self.actors = 8 * workers.count
        #: The sessions that have work; the agent takes them from here.
        self.ready = ReadySessions(app, self._project)
        self._files = FileSessions(audio, spool, open_file, self.ready)
        #: Whose the last step was, and when last a step was of another project than the one before.
        self._project_before = ""
        self._shared_at = -SHARED_SECONDS
        self._active: OrderedDict[str, ActiveSession] = OrderedDict()

    async def on_stop(self) -> None:
        """Let go of all files. What is not analysed yet is found again in the rows."""
        for session in list(self._active):
            self.forget(session)
        await self._files.close()

    def enqueue(self, session: str) -> None:
        self.ready.add(session)

    def forget(self, session: str) -> None:
        """The session is gone: its pending inference is cancelled at the next step."""
        self.ready.discard(session)
        self.taps.forget(session)
        active = self._active.pop(session, None)
        # One that an actor has is in the hands of a thread; its step closes it.
        if active is not None and not self.ready.is_running(session):
            self._close(active)

    def sessions(self) -> list[str]:
        """Return the sessions that something is held of in memory."""
        return [*self._active, *self.ready.waiting()]

    def _project(self, session: str) -> str:
        """Return whose turn it is for a session; "" where its partition went, or it is gone."""
        if (active := self._active.get(session)) is not None:
            return active.project
        try:
            opened = self.store_of(session).opened(session)
        except Unavailable:
            return ""
        return "" if opened is None else opened.project

    async def step(self, session: str) -> None:
        """Do one step of a session that was taken from `ready`."""
        pause = None
        try:
            pause = await self._attempt(session)
        finally:
            self.ready.done(session, pause)

    async def _attempt(self, session: str) -> float | None:
        """Do one step; return in how many seconds the session's next is due, None when it has no more work."""
        active = self._activate(session)
        pause: float | None
        try:
            pause = await self._take_step(active)
            if not (active.failures or active.deaths) or self._reached(active.id) != active.failed_at:
                active.retries = active.failures = active.deaths = 0
        except NotOwned:
            # Its new owner finds the work in the rows, and so does this node when the partition comes back.
            self._active.pop(session, None)
            pause = None
        except StateLost:
            self._close(active)
            pause = AGAIN_SECONDS
        except WorkerDied:
            self._close(active)
            active.deaths += 1
            active.failed_at = self._reached(active.id)
            pause = AGAIN_SECONDS if active.deaths < DEATHS else await self._failed(active, AudioError(DEADLY))
        except Exception as error:
            pause = await self._failed(active, error)
        if self._active.get(session) is not active:
            self._close(active)
            return None
        return pause

    async def _failed(self, active: ActiveSession, error: Exception) -> float | None:
        """The audio's own faults end the session; faults of the service are tried again."""
        passing = isinstance(error, (Unavailable, OSError))
        if not passing:
            active.failures += 1
            active.failed_at = self._reached(active.id)
        if not isinstance(error, AudioError) and (passing or active.failures < ATTEMPTS):
            return self._later(active, error)
        if not isinstance(error, EarshotError):
            log.error("analysis.failed", session=keys.shown(active.id), error=repr(error), exc_info=error)
        message = str(error) if isinstance(error, EarshotError) else "the audio could not be analysed: internal error"
        self._close(active)
        try:
            await self.emit(active.id, Failed(message))
        except Unavailable as refused:
            return self._later(active, refused)
        active.ended = True
        return None

    def _reached(self, session: str) -> tuple[int, int] | None:
        """Return how many windows and chunks of a session are settled; None where it cannot be read, or is gone."""
        try:
            store = self.store_of(session)
            head = store.peek(session) if store.readable(session) else None
        except Unavailable:
            return None
        return None if head is None else (head.windows, head.cursor.chunks)

    def _later(self, active: ActiveSession, error: Exception) -> float:
        active.retries += 1
        log.warning("analysis.retry", session=keys.shown(active.id), error=repr(error), attempt=active.retries)
        self._close(active)
        return retry.pause(active.retries)

    def _activate(self, session: str) -> ActiveSession:
        active = self._active.get(session)
        if active is None:
            active = self._active[session] = ActiveSession(session, self._project(session))
        self._active.move_to_end(session)
        active.stepped = now = time.monotonic()
        if len(self._active) > PROGRESS_MOST:
            oldest = next(iter(self._active))
            if not self.ready.is_running(oldest):
                self._close(self._active.pop(oldest))
        if active.project != self._project_before:
            if self._project_before:
                self._shared_at = now
            self._project_before = active.project
        return active

    @mode.Service.task
    async def _keep_tidy(self) -> None:
        """Close, now and then, what has had no work for a while."""
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            before = time.monotonic() - PAUSE_SECONDS
            for session, active in list(islice(self._active.items(), max(0, len(self._active) - PROGRESS_KEPT))):
                if active.stepped < before and not self.ready.has(session):
                    self._close(self._active.pop(session))

    async def _take_step(self, active: ActiveSession) -> float | None:
        """Return in how many seconds the next step is due; None when there is no more work."""
        store = self.store_of(active.id)
        head, opened = store.head(active.id), store.opened(active.id)
        if head is None or opened is None or head.finished or head.error is not None or active.ended:
            return None
        if active.model is None:
            active.model = await self._model(store, active, head, opened)
        if head.kind == "file":
            if head.state is not SessionState.READONLY:
                return None
            return await self._file_step(active, active.model, store, head, opened)
        return 0.0 if await self._stream_step(active, active.model, store, head, opened) else None

    async def _model(self, store: SessionStore, active: ActiveSession, head: SessionHead, opened: Opened) -> Manifest:
        """Return the manifest of the model that the session was opened with.

        Raises:
            Unavailable: it is not here now; the session waits for it, since another one's windows would not fit.
        """
        # Sessions from before models could change: the model that scored their last window, or any.
        last = None if opened.model else store.block(active.id, max(0, head.windows - 1) // BLOCK_WINDOWS)
        current = self.models.current.manifest
        model = opened.model or (current.model_id if last is None else last.model)
        if model == current.model_id:
            return current
        try:
            return (await asyncio.to_thread(self.models.engine, model)).manifest
        except EngineError as error:
            raise Unavailable(f"the session waits for its model: {error}") from error

    def _begin(
        self, model: Manifest, head: SessionHead, opened: Opened, declared: Media, rate: int | None = None
    ) -> WorkerSession:
        """Return a new analysis of a session that goes on where the head says; of a file of a `rate` from its start."""
        cursor = head.cursor if rate is None else Cursor(rate=rate)
        geometry = opened.window_ms, opened.hop_ms
        beginning = Beginning(
            model.model_id, *geometry, declared, cursor, head.windows, bool(head.predicts), rate is not None
        )
        return self.workers.session(opened.project, beginning, rate is None and declared.container != "raw")

    async def _stream_step(
        self, active: ActiveSession, model: Manifest, store: SessionStore, head: SessionHead, opened: Opened
    ) -> bool:
        declared = media.parse(opened.content_type)
        if active.analysis is None:
            active.analysis = self._begin(model, head, opened, declared)
            active.dropped = head.cursor.keep
        analysis = active.analysis
        chunks = [] if analysis.reading else await self._fetch(store, active.id, head, analysis.taken)
        last = not chunks and not analysis.reading
        if last and (head.state is not SessionState.READONLY or analysis.taken < head.next):
            return False
        seconds, together = 1.0, False
        if declared.container == "raw":
            second = declared.rate * pcm.frame_bytes(declared.sample_format, declared.channels)
            seconds = sum(map(len, chunks)) / second
            together = not last and seconds <= TOGETHER_S and not active.deaths
        scores = await analysis.take(
            chunks,
            seconds,
            last=last,
            together=together,
            alone=active.deaths > 0,
            meter=self._meter(active, head, opened),
        )
        await self._emit(active, model, head, scores, final=last)
        return not last and (analysis.taken < head.next or head.state is SessionState.READONLY)

    def _meter(self, active: ActiveSession, head: SessionHead, opened: Opened) -> SoundMeter | None:
        return self.taps.meter(active.id, opened, bool(head.predicts)) if self.taps.watched else None

    async def _fetch(self, store: SessionStore, session: str, head: SessionHead, first: int) -> list[bytes]:
        """Read the next chunks of a stream, as many as one step takes.

        Where they have to be read from the log, it is those that were read together: so the sessions of a partition
        that are behind go through its log side by side, and it is read once.
        """
        rows: list[AudioRow] = []
        size = 0
        most = SHARED_STEP_CHUNKS if time.monotonic() - self._shared_at < SHARED_SECONDS else STEP_CHUNKS
        waiting = store.audio(session, first, min(head.next, first + most))
        if first < head.next and not waiting:
            raise LookupError(f"chunk {first} of {head.next} has no row")
        for row in waiting:
            if rows and (size + row.length > STEP_BYTES or not self.audio.at_hand(store.partition.number, row.offset)):
                break
            rows.append(row)
            size += row.length
        chunks = self.audio.cached(store.partition.number, rows)
        if chunks is None:
            chunks = [data async for data in self.audio.read(store.partition.number, rows)]
        for row in rows:
            self.audio.cache.drop(store.partition.number, row.offset)
        if chunks and first + len(chunks) == head.next:
            chunks[-1] = _within(chunks[-1], head)
        return chunks

    async def _file_step(
        self, active: ActiveSession, model: Manifest, store: SessionStore, head: SessionHead, opened: Opened
    ) -> float | None:
        if head.next == 0:
            await self._emit(active, model, head, Analysed(0, b"", head.cursor, 0), final=True)
            return None
        if active.file is None:
            active.file = await self._files.open(store, active.id, head, opened)
            if active.file is None:
                return DECODER_FREE
        file = active.file
        if active.analysis is None:
            declared = media.parse(opened.content_type)
            active.analysis = self._begin(model, head, opened, declared, file.rate)
        samples = await self._files.read(file)
        whole = file.ended and file.error is None
        scores = await active.analysis.take(
            [samples.data.cast("B")] if len(samples) else [],
            len(samples) / file.rate,
            last=whole,
            alone=active.deaths > 0,
            meter=self._meter(active, head, opened),
        )
        gathered = file.gather(scores, len(model.tags), head.next)
        if gathered is not None:
            await self._emit(active, model, head, gathered, final=file.ended)
        return None if file.ended else 0.0

    def _close(self, active: ActiveSession) -> None:
        if active.analysis is not None:
            active.analysis.close()
            active.analysis = None
        if active.file is not None:
            self._files.close_file(active.file)
            active.file = None

    async def _emit(
        self, active: ActiveSession, model: Manifest, head: SessionHead, scores: Analysed, final: bool = False
    ) -> None:
        cursor, tags = scores.cursor, len(model.tags)
        # A worker that decodes what strangers encoded may say anything.
        if len(scores.packed) % tags or not 0 <= cursor.keep <= cursor.chunks <= head.next:
            raise WorkerDied
        final = final and scores.error is None
        await self.emit(
            active.id, Scored(scores.first, model.model_id, scores.packed, cursor, active.dropped, final, tags)
        )
        active.dropped = cursor.keep
        if scores.error is not None:
            raise AudioError(scores.error)
        if final:
            self._close(active)
            active.ended = True


def _within(data: bytes, head: SessionHead) -> bytes:
    """Cut what goes beyond `total_size` off the last chunk: some clients pad it with zeros."""
    if head.total_size is None or head.received <= head.total_size:
        return data
    return data[: max(0, len(data) - (head.received - head.total_size))]
