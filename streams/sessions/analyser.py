"""The analyser: takes accepted chunks of each session in order and writes their windows to the result topic.

The fold tells it which sessions have work; the rows say what the work is, so nothing is lost with the process. An agent
takes the sessions that are ready, and asks for one step of each (`streams/agents.py`). Decoding, framing and inference
happen in worker threads, and no partition is held while they do.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, cast

import mode
import msgspec
import structlog
from faust import App

from streams.audio import pcm
from streams.audio.decode import OpenFile
from streams.audio.levels import SoundMeter
from streams.folding import retry
from streams.folding.lives import Lives
from streams.folding.suspects import Suspects
from streams.models.loaded_models import LoadedModels
from streams.models.protocol import SoundEngine
from streams.sessions.audio import AudioSource
from streams.sessions.progress import FileProgress, Progress, Scores, StreamProgress, WindowProgress, take_together
from streams.sessions.ready import ReadySessions
from streams.sessions.store import SessionStore
from streams.sessions.taps import Taps
from streams.sessions.threads import LoopThreads
from topics import keys, media
from topics.errors import AudioError, EarshotError, EngineError, NotOwned, Unavailable
from topics.folding import DEADLY, DEATHS
from topics.geometry import Geometry
from topics.rows import AudioRow
from topics.sessions.records import Begun, Failed, Opened, Scored, SessionResult
from topics.sessions.rows import BLOCK_WINDOWS
from topics.sessions.rules import SessionHead, SessionState

T = TypeVar("T")

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
SPOOL_IN_MEMORY: Final = 4 * 1024 * 1024
#: Sessions, some 27 KiB each, whose analysis stays in memory between steps however long they pause, and such that have
#: work or had some in the last seconds. One that was closed reads its last chunks from the log again.
PROGRESS_KEPT: Final = 1024
PROGRESS_MOST: Final = 16 * PROGRESS_KEPT
PAUSE_SECONDS: Final = 2.0
TIDY_SECONDS: Final = 1.0
ATTEMPTS: Final = 3
#: Files, and chunks that are longer than a step, whose decoders wait between steps: some 10 MB each.
MOST_HELD: Final = 32
#: In so many seconds a session is due that waits for a decoder to hold: it is queued when there is one.
DECODER_FREE: Final = math.inf

#: Until a suspected session asks again whether it is its turn.
SUSPECT_SECONDS: Final = 0.05

#: Append a result of a session to the result topic; returns once it is durable.
Emit = Callable[[str, SessionResult], Awaitable[None]]
#: Append a result without waiting, also while this process stops, or has lost the session's partition.
Note = Callable[[str, SessionResult], None]
#: The store that holds a session now; raises NotOwned when its partition is elsewhere, Unavailable while it is unready.
StoreOf = Callable[[str], SessionStore]


class ActiveSession(msgspec.Struct):
    """What this process holds in memory of a session that was analysed lately."""

    id: str
    project: str
    #: The model that scores the session.
    engine: SoundEngine | None = None
    progress: Progress | FileProgress | None = None
    #: The `keep` of the last result that was emitted: chunk rows below it are dropped already.
    dropped: int = 0
    ended: bool = False
    #: Attempts in a row that failed, and those of them that count against the session: not for want of the service.
    retries: int = 0
    failures: int = 0
    #: How far it was when it last failed so: steps that lead there again are no success.
    failed_at: tuple[int, int] | None = None
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
        note: Note,
        suspects: Suspects,
        workers: int,
        spool: Path,
        open_file: OpenFile,
        lives: Lives,
    ) -> None:
        super().__init__()
        self.models = models
        self.audio = audio
        self.store_of = store_of
        self.emit = emit
        self.note = note
        self.suspects = suspects
        self.spool = spool
        self.lives = lives
        self.taps = Taps()
        self._threads = LoopThreads(workers, "inference")
        # More than threads: most of a step's time is spent waiting for the log.
        self.actors = 8 * workers
        # They wait for decoders most of the time; an actor never waits for one of them.
        self._decoding = LoopThreads(self.actors, "decoding")
        self._open_file = open_file
        #: Sessions that hold a decoder between steps, and those that wait until one of these has done.
        self._holding: set[str] = set()
        self._awaiting: deque[str] = deque()
        #: Whose the last step was, and when last a step was of another project than the one before.
        self._project_before = ""
        self._shared_at = -math.inf
        self._active: OrderedDict[str, ActiveSession] = OrderedDict()
        #: The sessions that have work; the agent takes them from here.
        self.ready = ReadySessions(app, self._project)

    async def on_start(self) -> None:
        """Start the threads."""
        self._threads.start()
        self._decoding.start()

    async def on_stop(self) -> None:
        """Stop the threads; no step is taken any more. What is not analysed yet is found again in the rows."""
        await asyncio.gather(self._decoding.stop(), self._threads.stop())
        for session in list(self._active):
            self.forget(session)

    def enqueue(self, session: str) -> None:
        self.ready.add(session)

    def forget(self, session: str) -> None:
        """The session is gone: its pending inference is cancelled at the next step."""
        self.ready.discard(session)
        self.suspects.clear(session)
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
            take = self._take_suspect_step if session in self.suspects else self._take_step
            pause = await take(active)
            if not active.failures or self._reached(active.id) != active.failed_at:
                active.retries = active.failures = 0
        except NotOwned:
            # Its new owner finds the work in the rows, and so does this node when the partition comes back.
            self._active.pop(session, None)
            self.suspects.clear(session)
            pause = None
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
        self.suspects.clear(active.id)
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

    async def _take_suspect_step(self, active: ActiveSession) -> float | None:
        """Do steps of a session until one gets further, with a record on the log in case that the process dies of it.

        Raises:
            AudioError: so many processes have died.
        """
        head = self.store_of(active.id).head(active.id)
        if head is None or not head.analysable:
            self.suspects.clear(active.id)
            return await self._take_step(active)
        deaths, lives = self.lives.suspected(head.begun, head.begun_by)
        if deaths >= DEATHS:
            raise AudioError(DEADLY)
        if not self.suspects.has_turn(alone=deaths > 0):
            return SUSPECT_SECONDS  # No actor waits with it.
        async with self.suspects.session_turn(alone=deaths > 0):
            begun = Begun(head.windows, head.cursor.chunks, deaths + 1, (*lives, self.lives.this))
            await self.emit(active.id, begun)
            pause: float | None = 0.0
            further = False
            try:
                while pause == 0.0 and not further:
                    pause = await self._take_step(active)
                    further = _is_further(self.store_of(active.id).head(active.id), begun)
            finally:
                if not further:  # The process lives, or is told to end.
                    self.note(active.id, msgspec.structs.replace(begun, times=deaths, lives=lives))
                if pause != DECODER_FREE:
                    self.suspects.clear(active.id)
            return pause

    async def _take_step(self, active: ActiveSession) -> float | None:
        """Return in how many seconds the next step is due; None when there is no more work."""
        store = self.store_of(active.id)
        head, opened = store.head(active.id), store.opened(active.id)
        if head is None or opened is None or head.finished or head.error is not None or active.ended:
            return None
        if active.engine is None:
            active.engine = await self._engine(store, active, head, opened)
        if head.kind == "file":
            if head.state is not SessionState.READONLY:
                return None
            return await self._file_step(active, active.engine, store, head, opened)
        return 0.0 if await self._stream_step(active, active.engine, store, head, opened) else None

    async def _engine(
        self, store: SessionStore, active: ActiveSession, head: SessionHead, opened: Opened
    ) -> SoundEngine:
        """Return the model that the session was opened with.

        Raises:
            Unavailable: it is not here now; the session waits for it, since another one's windows would not fit.
        """
        # Sessions from before models could change: the model that scored their last window, or any.
        last = None if opened.model else store.block(active.id, max(0, head.windows - 1) // BLOCK_WINDOWS)
        model = opened.model or (self.models.current.manifest.model_id if last is None else last.model)
        try:
            return await self._threads.run(active.project, self.models.engine, model)
        except EngineError as error:
            raise Unavailable(f"the session waits for its model: {error}") from error

    def _opener(self, opened: Opened) -> OpenFile:
        return partial(self._open_file, owner=opened.project)

    async def _stream_step(
        self, active: ActiveSession, engine: SoundEngine, store: SessionStore, head: SessionHead, opened: Opened
    ) -> bool:
        if active.progress is None:
            kind = WindowProgress if head.predicts else StreamProgress
            geometry = Geometry(opened.window_ms, opened.hop_ms)
            active.progress = kind(engine, geometry, media.parse(opened.content_type), head, self._opener(opened))
            active.dropped = head.cursor.keep
        progress = cast(Progress, active.progress)
        progress.meter = self._meter(active, head, opened)
        chunks = [] if progress.reading else await self._fetch(store, active.id, head, progress.taken)
        if chunks or progress.reading:
            await self._emit(active, engine, await self._take(active, progress, chunks))
            return progress.taken < head.next or head.state is SessionState.READONLY
        if head.state is SessionState.READONLY and progress.taken >= head.next:
            scores = await self._threads.run(active.project, progress.finish)
            await self._emit(active, engine, scores, final=True)
        return False

    def _meter(self, active: ActiveSession, head: SessionHead, opened: Opened) -> SoundMeter | None:
        return self.taps.meter(active.id, opened, bool(head.predicts)) if self.taps.watched else None

    async def _take(self, active: ActiveSession, progress: Progress, chunks: list[bytes]) -> Scores:
        if progress.media.container == "raw":
            declared = progress.media
            second = declared.rate * pcm.frame_bytes(declared.sample_format, declared.channels)
            short = sum(map(len, chunks)) <= TOGETHER_S * second
            if short and isinstance(progress, StreamProgress) and active.id not in self.suspects:
                return await self._threads.run_together(active.project, take_together, (progress, chunks))
            return await self._threads.run(active.project, progress.take, chunks)
        await self._decoding.run(active.project, progress.decode, chunks)
        if not progress.reading:
            self._release(active.id)
        elif not self._hold(active.id):
            # The next step begins the chunk again: it takes longer, and nobody's decoder.
            progress.close()
        return await self._threads.run(active.project, progress.score)

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
        chunks = [data async for data in self.audio.read(store.partition.number, rows)]
        for row in rows:
            self.audio.cache.drop(store.partition.number, row.offset)
        if chunks and first + len(chunks) == head.next:
            chunks[-1] = _within(chunks[-1], head)
        return chunks

    async def _file_step(
        self, active: ActiveSession, engine: SoundEngine, store: SessionStore, head: SessionHead, opened: Opened
    ) -> float | None:
        if head.next == 0:
            await self._emit(active, engine, Scores(0, b"", head.cursor), final=True)
            return None
        if active.progress is None:
            declared = media.parse(opened.content_type)
            if declared.container != "raw" and not self._hold(active.id):
                self._awaiting.append(active.id)
                return DECODER_FREE
            active.progress = await self._gather(active, engine, store, head, opened, declared)
        progress = cast(FileProgress, active.progress)
        progress.meter = self._meter(active, head, opened)
        await self._decoding.run(active.project, progress.decode)
        scores = await self._threads.run(active.project, progress.score, len(engine.manifest.tags))
        if scores is not None:
            await self._emit(active, engine, scores, final=progress.ended)
        return None if progress.ended else 0.0

    def _hold(self, session: str) -> bool:
        """Return whether a session may hold a decoder between its steps."""
        if session not in self._holding and len(self._holding) >= MOST_HELD:
            return False
        self._holding.add(session)
        return True

    def _release(self, session: str) -> None:
        """A session holds no decoder any more; the next one that waits gets its turn."""
        self._holding.discard(session)
        while self._awaiting and len(self._holding) < MOST_HELD:
            awaiting = self._awaiting.popleft()
            if self.ready.is_waiting(awaiting):
                self.ready.queue_up(awaiting)
                return

    async def _gather(
        self,
        active: ActiveSession,
        engine: SoundEngine,
        store: SessionStore,
        head: SessionHead,
        opened: Opened,
        declared: media.Media,
    ) -> FileProgress:
        """Gather a file's chunks, in memory while small, else in a file without a name."""
        # Closed with the session's analysis, which outlives this call.
        spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_IN_MEMORY, dir=str(self.spool)))  # noqa: SIM115
        try:
            await self._fill(spool, store, active.id, head)
            geometry = Geometry(opened.window_ms, opened.hop_ms)
            opening = (engine, geometry, declared, head, spool, self._opener(opened))
            return await self._decoding.run(active.project, FileProgress, *opening)
        except BaseException:
            spool.close()
            raise

    async def _fill(self, spool: BinaryIO, store: SessionStore, session: str, head: SessionHead) -> None:
        chunks = store.audio(session, 0, head.next)
        if len(chunks) < head.next:
            raise LookupError(f"chunk {len(chunks)} of {head.next} has no row")
        rest = head.received if head.total_size is None else min(head.received, head.total_size)
        async with aclosing(self.audio.read(store.partition.number, chunks)) as audio:
            async for data in audio:
                spool.write(data[:rest])
                rest -= len(data[:rest])
        for row in chunks:
            self.audio.cache.drop(store.partition.number, row.offset)
        spool.seek(0)

    def _close(self, active: ActiveSession) -> None:
        if active.progress is not None:
            active.progress.close()
            active.progress = None
        if self._active.get(active.id, active) is active:
            self._release(active.id)

    async def _emit(self, active: ActiveSession, engine: SoundEngine, scores: Scores, final: bool = False) -> None:
        model, tags = engine.manifest.model_id, len(engine.manifest.tags)
        final = final and scores.error is None
        await self.emit(
            active.id, Scored(scores.first, model, scores.packed, scores.cursor, active.dropped, final, tags)
        )
        active.dropped = scores.cursor.keep
        if scores.error is not None:
            raise AudioError(scores.error)
        if final:
            self._close(active)
            active.ended = True


def _is_further(head: SessionHead | None, begun: Begun) -> bool:
    return head is None or head.finished or (head.windows, head.cursor.chunks) != (begun.windows, begun.chunks)


def _within(data: bytes, head: SessionHead) -> bytes:
    """Cut what goes beyond `total_size` off the last chunk: some clients pad it with zeros."""
    if head.total_size is None or head.received <= head.total_size:
        return data
    return data[: max(0, len(data) - (head.received - head.total_size))]
