"""The steps of sessions: get the next audio, have a worker score it, write the windows."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from streams.audio.levels import SEGMENT_MS, SoundMeter
from streams.models.loaded_models import LoadedModels
from streams.models.manifest import Manifest
from streams.models.own_sounds import widths
from streams.sessions.audio import AudioCache
from streams.sessions.files import DECODER_FREE, FileSessions, bytes_to_analyse
from streams.sessions.store import SessionStore
from streams.sessions.taps import Taps, segments_of_hop
from streams.sessions.warm import ActiveSession, WarmSessions
from streams.sessions.window_writer import WindowWriter
from streams.workers.messages import Answer, Beginning, ScoredWindows
from streams.workers.process import StateLost, WorkerDied
from streams.workers.progress import STEP_S
from streams.workers.session import WorkerSession
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers
from topics.errors import AudioError, EngineError, Unavailable
from topics.folding import AudioRow
from topics.hearing import parts_of
from topics.media import Media
from topics.sessions.capture import SourceNote
from topics.sessions.records import Cursor, NewWindows, Opened
from topics.sessions.rules import SessionHead, SessionState
from topics.traces import StepSpans

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


class SessionStep(msgspec.Struct, eq=False):
    """One step of a session: its next audio, and then its windows."""

    active: ActiveSession
    model: Manifest
    store: SessionStore
    head: SessionHead
    opened: Opened
    rows: Sequence[AudioRow] = ()
    chunks: Sequence[bytes] = ()
    #: No audio follows.
    last: bool = False
    #: None if there are none to write yet.
    windows: ScoredWindows | None = None
    #: None unless it is traced.
    spans: StepSpans | None = None

    @property
    def media(self) -> Media:
        return self.active.media(self.opened)


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

    # --- the audio --------------------------------------------------------------------------------------------------

    async def begin(self, active: ActiveSession, shares: bool) -> SessionStep | float | None:
        """Return a session's next step with its audio, or the seconds until one is due, None if no work is left.

        A step that `shares` its tick comes back for one of its own if the others would wait for the log.

        Raises:
            NotOwned: its partition is elsewhere.
            AudioError: its audio cannot be analysed.
            StateLost: the session must begin again.
            Unavailable: the log, the model or a decoder is not available.
        """
        store = self.store_of(active.id)
        head, opened = store.head(active.id), store.opened(active.id)
        if head is None or opened is None or head.ended or active.ended:
            return None
        if active.model is None:
            active.model = await self._model(opened)
        step = SessionStep(active, active.model, store, head, opened)
        if head.kind == "file":
            return await self._begin_file(step)
        if active.analysis is None:
            active.analysis = self._analysis(step)
            active.windows = head.windows
        limit = head.next
        if head.has_unheard:
            # A note's place is before the first window that its audio has a part in.
            notes, come = store.notes(active.id, head.heard), max(head.cursor.chunks, active.analysis.taken)
            if some := [note for note in notes if note.chunk <= come]:
                await self._hear(step, some)
                return 0.0
            limit = min([limit, *(note.chunk for note in notes)])
        if not await self._fetch(step, active.analysis, shares, limit):
            active.apart = True
            return 0.0
        if not step.chunks and not active.analysis.reading:
            if head.state is not SessionState.READONLY or active.analysis.taken < head.next:
                return None
            step.last = True
        return step

    async def _hear(self, step: SessionStep, notes: Sequence[SourceNote]) -> None:
        """Write that the analysis has come to notes of the source, and return once readers see it."""
        first, name = step.head.windows, step.opened.model or step.model.model_id
        heard = tuple(msgspec.structs.replace(note, window=first) for note in notes)
        await self._writer.write(step.active.id, NewWindows(first, name, b"", step.head.cursor, notes=heard))

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

    def _analysis(self, step: SessionStep, slot: WorkerSlot | None = None) -> WorkerSession:
        """Begin an analysis where the head says or, for the file of a slot, at its start."""
        head, opened, declared = step.head, step.opened, step.media
        cursor = head.cursor if slot is None else Cursor()
        geometry = opened.window_ms, opened.hop_ms
        beginning = Beginning(
            step.model.model_id,
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

    async def _begin_file(self, step: SessionStep) -> SessionStep | float | None:
        active, head = step.active, step.head
        if head.state is not SessionState.READONLY:
            return None
        if not head.next:
            step.windows, step.last = ScoredWindows(0, b"", head.cursor, 0), True
            await self.finish(step, self.write(step))
            return None
        if active.file is None:
            active.file = await self._files.open(step.store, active.id, head, step.opened)
            if active.file is None:
                return DECODER_FREE
        if active.analysis is None:
            active.analysis = self._analysis(step, active.file.slot)
            active.windows = head.windows
        return step

    async def _fetch(self, step: SessionStep, analysis: WorkerSession, shares: bool, limit: int) -> bool:
        """Get the rows and audio of a stream's next chunks below `limit`, as many as one step takes.

        Return whether it did.

        From the log, take only chunks that one read returned: so sessions of a partition that are behind move through
        its log together, and it is read once.
        """
        if analysis.reading:
            return True
        head, store, declared, session = step.head, step.store, step.media, step.active.id
        first, number, chunks, size = analysis.taken, store.partition.number, list[bytes](), 0
        longest = self._workers.longest_step(step.active.project)
        waiting = store.audio(session, first, min(limit, first + STEP_CHUNKS))
        if first < limit and not waiting:
            raise LookupError(f"chunk {first} of {head.next} has no row")
        for place, row in enumerate(waiting):
            size += row.length
            is_full = size > STEP_BYTES or length_s(declared, place + 1, size) > longest
            at_hand = self.audio.at_hand(number, row.offset)
            if chunks and (is_full or not at_hand):
                break
            if shares and not at_hand:
                return False
            try:
                chunks.append(await self.audio.chunk(number, row, waiting[place + 1 :]))
            except AudioError:
                now = store.head(session)
                if now is not None and now.cursor.keep > head.cursor.keep:
                    # The last windows were shown only now, and released audio that nothing needs any more.
                    raise StateLost from None
                raise
        if chunks and first + len(chunks) == head.next and declared.container == "raw":
            excess = head.received - bytes_to_analyse(head, declared)
            chunks[-1] = chunks[-1][: max(0, len(chunks[-1]) - excess)]
        step.rows, step.chunks = waiting[: len(chunks)], chunks
        return True

    # --- the windows ------------------------------------------------------------------------------------------------

    def ask(self, step: SessionStep) -> Awaitable[Answer]:
        """Have a worker decode, window and score the audio of a step; return what gives its answer, for `absorb`."""
        active, declared, suspect = step.active, step.media, step.active.deaths.own > 0
        assert active.analysis is not None
        seconds = length_s(declared, len(step.chunks), sum(map(len, step.chunks)))
        if active.analysis.reading:
            seconds = STEP_S
        is_short = declared.container == "raw" and seconds <= TOGETHER_S and active.file is None
        active.apart = suspect or not is_short
        together, meter = not (active.apart or step.last), None
        if self._taps.watched:
            meter = self._taps.meter(active.id, step.opened, bool(step.head.predicts), active.meter)
        if self._writer.needs_level(step.opened):
            active.meter = meter = meter or active.meter or SoundMeter()
        else:
            active.meter = None
        return active.analysis.ask(step.chunks, seconds, meter, last=step.last, together=together, alone=suspect)

    async def absorb(self, step: SessionStep, asked: Awaitable[Answer]) -> None:
        """Get the windows of a step; raises the errors of `WorkerSession.absorb`."""
        active = step.active
        assert active.analysis is not None
        try:
            step.windows = active.analysis.absorb(await asked)
        finally:
            # Not before, so that audio waiting for a worker counts in the cache.
            for row in step.rows:
                self.audio.drop(step.store.partition.number, row.offset)
        if active.file is not None:
            width = sum(widths(step.model, step.opened.hearing))
            step.windows = active.file.gather(step.windows, width, step.head.next)
            step.last = active.file.ended

    # --- the rows ---------------------------------------------------------------------------------------------------

    def write(self, step: SessionStep) -> Awaitable[None]:
        """Write the windows of a step; return what ends once readers see them, for `finish`.

        Raises:
            WorkerDied: a worker that decodes outsiders' audio may be compromised, and these are no windows.
            NotOwned, Unavailable, StateLost: as `WindowWriter.put`.
        """
        assert step.windows is not None
        active, new, (tags, size) = step.active, step.windows, widths(step.model, step.opened.hearing)
        count, rest = divmod(len(new.packed), tags + size)
        if rest or new.first != active.windows or count > MOST_WINDOWS:
            raise WorkerDied
        if not 0 <= new.cursor.keep <= new.cursor.chunks <= step.head.next:
            raise WorkerDied
        packed, embeddings = new.packed, b""
        if size:
            rows = np.frombuffer(packed, np.uint8).reshape(-1, tags + size)
            packed, embeddings = rows[:, :tags].tobytes(), rows[:, tags:].tobytes()
        name, final = step.opened.model or step.model.model_id, step.last and new.error is None
        levels = self._levels(step, range(new.first, new.first + count))
        written = self._writer.write(
            active.id,
            NewWindows(new.first, name, packed, new.cursor, final, tags, embeddings, new.silent, levels=levels),
        )
        active.windows += count
        return written

    def _levels(self, step: SessionStep, windows: range) -> tuple[float | None, ...]:
        if (meter := step.active.meter) is None:
            return ()
        hop, count = segments_of_hop(step.opened, bool(step.head.predicts)), step.opened.window_ms // SEGMENT_MS
        return tuple([meter.level(window * hop, count) for window in windows])

    async def finish(self, step: SessionStep, written: Awaitable[None]) -> None:
        """Wait until readers see the windows of a step.

        Raises:
            AudioError: the audio after them cannot be analysed.
        """
        await written
        assert step.windows is not None
        if step.windows.error is not None:
            raise AudioError(step.windows.error)
        if step.last:
            self._warm.close(step.active)
            step.active.ended = True

    def pause(self, step: SessionStep) -> float | None:
        """Return the seconds until the next step is due, None if no work is left."""
        if step.last:
            return None
        analysis, is_sealed = step.active.analysis, step.head.state is SessionState.READONLY
        is_behind = step.head.has_unheard or (analysis is not None and analysis.taken < step.head.next)
        return 0.0 if is_sealed or is_behind else None
