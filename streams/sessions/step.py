"""One step of a session: reads its next audio, has a worker analyse it, and writes its windows."""

import asyncio
from collections.abc import Callable
from typing import Final

import numpy as np

from streams.audio.levels import SoundMeter
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.models.own_sounds import widths
from streams.sessions.audio import AudioCache
from streams.sessions.files import DECODER_FREE, FileSessions, bytes_to_analyse
from streams.sessions.store import SessionStore
from streams.sessions.taps import Taps
from streams.sessions.warm import ActiveSession, WarmSessions
from streams.sessions.window_writer import WindowWriter
from streams.workers.messages import Beginning, Scored
from streams.workers.process import StateLost, WorkerDied
from streams.workers.progress import STEP_S
from streams.workers.session import WorkerSession
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers
from topics.errors import AudioError, EngineError, Unavailable
from topics.folding import AudioRow
from topics.hearing import parts_of
from topics.media import Media
from topics.sessions.records import Cursor, NewWindows, Opened
from topics.sessions.rules import SessionHead, SessionState

STEP_CHUNKS: Final = 16
#: Longest step (s) that shares a batch with other sessions. A longer one fills batches alone and would delay them.
TOGETHER_S: Final = 1
STEP_BYTES: Final = 2 * 1024 * 1024
#: More windows than one step can honestly return: at the lowest sample rate, a worker decodes up to 2^20 samples of
#: small chunks at a time, which are some 2,100 windows.
MOST_WINDOWS: Final = 3000

#: Returns the store of a session; raises NotOwned if its partition is elsewhere, Unavailable until it is ready.
StoreOf = Callable[[str], SessionStore]


def length_s(declared: Media, chunks: int, size: int) -> float:
    """Return the seconds of audio in so many chunks and bytes; one for each chunk if it is encoded."""
    if declared.container != "raw":
        return chunks
    return size / (declared.rate * declared.frame_bytes)


class SessionSteps:
    """Runs the steps of a node's sessions. Loop only; one step of a session at a time."""

    def __init__(
        self,
        models: LoadedModels,
        audio: AudioCache,
        store_of: StoreOf,
        writer: WindowWriter,
        workers: Workers,
        files: FileSessions,
        warm: WarmSessions,
        taps: Taps,
    ) -> None:
        self.models = models
        self.audio = audio
        self.store_of = store_of
        self._writer = writer
        self._workers = workers
        self._files = files
        self._warm = warm
        self._taps = taps

    async def take(self, active: ActiveSession) -> float | None:
        """Run one step; return the seconds until the next is due, None if no work is left.

        Raises:
            NotOwned: its partition is elsewhere.
            AudioError: its audio cannot be analysed.
            EngineError: the model failed.
            WorkerDied, StateLost: its worker is gone; the session may be the cause.
            Unavailable: the log, the model or a decoder is not available.
        """
        store = self.store_of(active.id)
        head, opened = store.head(active.id), store.opened(active.id)
        if head is None or opened is None or head.ended or active.ended:
            return None
        if active.model is None:
            active.model = await self._model(opened)
        if head.kind == "file":
            if head.state is not SessionState.READONLY:
                return None
            return await self._file_step(active, active.model, store, head, opened)
        return 0.0 if await self._stream_step(active, active.model, store, head, opened) else None

    async def _model(self, opened: Opened) -> Manifest:
        """Return the manifest of the model with which the session was opened.

        Raises:
            Unavailable: it is not loaded here; the session waits, because another model's windows would not fit.
        """
        current = self.models.current.manifest
        model, _ = parts_of(opened.model or current.model_id)
        if model == current.model_id:
            return current
        try:
            return (await asyncio.to_thread(self.models.engine, model)).manifest
        except EngineError as error:
            raise Unavailable(f"the session waits for its model: {error}") from error

    def _begin(
        self, model: Manifest, head: SessionHead, opened: Opened, declared: Media, slot: WorkerSlot | None = None
    ) -> WorkerSession:
        """Begin an analysis where the head says or, for the file of a slot, at its start."""
        cursor = head.cursor if slot is None else Cursor()
        geometry = opened.window_ms, opened.hop_ms
        beginning = Beginning(
            model.model_id,
            *geometry,
            declared,
            cursor,
            head.windows,
            bool(head.predicts),
            slot is not None,
            opened.hearing,
        )
        owned = slot is None and declared.container != "raw"
        return WorkerSession(self._workers, opened.project, beginning, owned, slot)

    async def _stream_step(
        self, active: ActiveSession, model: Manifest, store: SessionStore, head: SessionHead, opened: Opened
    ) -> bool:
        declared = active.media(opened)
        if active.analysis is None:
            active.analysis = self._begin(model, head, opened, declared)
            active.windows = head.windows
        analysis = active.analysis
        try:
            rows, chunks = await self._fetch(store, active.id, active.project, head, declared, analysis)
        except AudioError:
            now = store.head(active.id)
            if now is not None and now.cursor.keep > head.cursor.keep:
                # The last windows were shown only now, and released audio that nothing needs any more.
                raise StateLost from None
            raise
        last = not chunks and not analysis.reading
        if last and (head.state is not SessionState.READONLY or analysis.taken < head.next):
            return False
        seconds = STEP_S if analysis.reading else length_s(declared, len(chunks), sum(map(len, chunks)))
        is_short = declared.container == "raw" and seconds <= TOGETHER_S
        try:
            scores = await analysis.take(
                chunks,
                seconds,
                last=last,
                together=is_short and not last and not active.deaths.own,
                alone=active.deaths.own > 0,
                meter=self._meter(active, head, opened),
            )
        finally:
            # Not before, so that audio waiting for a worker counts in the cache.
            for row in rows:
                self.audio.drop(store.partition.number, row.offset)
        await self._write(active, model, head, opened, scores, final=last)
        return not last and (analysis.taken < head.next or head.state is SessionState.READONLY)

    def _meter(self, active: ActiveSession, head: SessionHead, opened: Opened) -> SoundMeter | None:
        return self._taps.meter(active.id, opened, bool(head.predicts)) if self._taps.watched else None

    async def _fetch(
        self,
        store: SessionStore,
        session: str,
        project: str,
        head: SessionHead,
        declared: Media,
        analysis: WorkerSession,
    ) -> tuple[list[AudioRow], list[bytes]]:
        """Return the rows and audio of a stream's next chunks, as many as one step takes.

        From the log, take only chunks that one read returned: so sessions of a partition that are behind move through
        its log together, and it is read once.
        """
        first, number, chunks, size = analysis.taken, store.partition.number, list[bytes](), 0
        if analysis.reading:
            return [], []
        longest = self._workers.longest_step(project)
        waiting = store.audio(session, first, min(head.next, first + STEP_CHUNKS))
        if first < head.next and not waiting:
            raise LookupError(f"chunk {first} of {head.next} has no row")
        for place, row in enumerate(waiting):
            size += row.length
            is_full = size > STEP_BYTES or length_s(declared, place + 1, size) > longest
            if chunks and (is_full or not self.audio.at_hand(number, row.offset)):
                break
            chunks.append(await self.audio.chunk(number, row, waiting[place + 1 :]))
        if chunks and first + len(chunks) == head.next and declared.container == "raw":
            excess = head.received - bytes_to_analyse(head, declared)
            chunks[-1] = chunks[-1][: max(0, len(chunks[-1]) - excess)]
        return waiting[: len(chunks)], chunks

    async def _file_step(
        self, active: ActiveSession, model: Manifest, store: SessionStore, head: SessionHead, opened: Opened
    ) -> float | None:
        if head.next == 0:
            await self._write(active, model, head, opened, Scored(0, b"", head.cursor, 0), final=True)
            return None
        if active.file is None:
            active.file = await self._files.open(store, active.id, head, opened)
            if active.file is None:
                return DECODER_FREE
        file = active.file
        if active.analysis is None:
            active.analysis = self._begin(model, head, opened, active.media(opened), file.slot)
            active.windows = head.windows
        alone, meter = active.deaths.own > 0, self._meter(active, head, opened)
        scores = await active.analysis.take([], 0.0, alone=alone, meter=meter)
        gathered = file.gather(scores, sum(widths(model, opened.hearing)), head.next)
        if gathered is not None:
            await self._write(active, model, head, opened, gathered, final=file.ended)
        return None if file.ended else 0.0

    async def _write(
        self,
        active: ActiveSession,
        model: Manifest,
        head: SessionHead,
        opened: Opened,
        scores: Scored,
        final: bool = False,
    ) -> None:
        cursor, (tags, size) = scores.cursor, widths(model, opened.hearing)
        # A worker that decodes outsiders' audio may be compromised and return anything.
        windows, rest = divmod(len(scores.packed), tags + size)
        if rest or scores.first != active.windows or windows > MOST_WINDOWS:
            raise WorkerDied
        if not 0 <= cursor.keep <= cursor.chunks <= head.next:
            raise WorkerDied
        final = final and scores.error is None
        packed, looks = scores.packed, b""
        if size:
            rows = np.frombuffer(packed, np.uint8).reshape(-1, tags + size)
            packed, looks = rows[:, :tags].tobytes(), rows[:, tags:].tobytes()
        name = opened.model or model.model_id
        new = NewWindows(scores.first, name, packed, cursor, final, tags, looks, scores.silent)
        await self._writer.write(active.id, new)
        active.windows += windows
        if scores.error is not None:
            raise AudioError(scores.error)
        if final:
            self._warm.close(active)
            active.ended = True
