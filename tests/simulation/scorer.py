"""Replaces the analyser: a window per chunk, from the rows and the log, with the analyser's memory and retries."""

import asyncio
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streams.folding import retry
from streams.node.tasks import Tasks
from streams.sessions.analyser import Fail
from streams.sessions.audio import AudioCache
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from streams.workers.process import StateLost
from topics.errors import AudioError, NotOwned, Unavailable
from topics.sessions.capture import SourceNote
from topics.sessions.records import Cursor, NewWindows
from topics.sessions.rules import SessionState

TAGS: Final = 4
MODEL: Final = "model@0"
#: Chunks of a step.
STEP_CHUNKS: Final = 3
ATTEMPTS: Final = 3


def window(data: bytes, kind: int = 0) -> bytes:
    """Return the scores of a chunk; on another kind of processor, the last byte differs."""
    return zlib.crc32(data).to_bytes(TAGS, "big")[: TAGS - 1] + bytes([kind])


class Progress:
    """Knowledge of a session beyond the rows."""

    def __init__(self, taken: int, windows: int) -> None:
        self.taken, self.windows = taken, windows
        self.failures = self.missing = 0


class Scorer:
    """Continues each session from memory while its partition is here, as the analyser does."""

    def __init__(
        self,
        store_of: Callable[[str], SessionStore],
        audio: AudioCache,
        writer: WindowWriter,
        fail: Fail,
        chance: random.Random,
        tasks: Tasks,
    ) -> None:
        self.taps = None
        self._store_of = store_of
        self._audio = audio
        self._writer = writer
        self._fail = fail
        self._chance = chance
        self._kind = chance.randrange(256)
        self._tasks = tasks
        self._known: dict[str, Progress] = {}
        self._waiting: dict[str, None] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def enqueue(self, session: str) -> None:
        self._waiting[session] = None
        if session not in self._running:
            self._running[session] = self._tasks.spawn(self._run(session), "scorer")

    def forget(self, session: str) -> None:
        self._waiting.pop(session, None)
        self._known.pop(session, None)

    def sessions(self) -> list[str]:
        return [*self._known, *self._waiting]

    async def _run(self, session: str) -> None:
        while session in self._waiting:
            del self._waiting[session]
            await asyncio.sleep(self._chance.random() * 0.01)
            pause = await self._attempt(session)
            if pause is not None:
                self._waiting[session] = None
                if pause:
                    await asyncio.sleep(pause)
        del self._running[session]

    async def _attempt(self, session: str) -> float | None:
        progress = None
        try:
            store = self._store_of(session)
            head = store.head(session)
            if head is None or head.ended:
                self._known.pop(session, None)
                return None
            progress = self._known.get(session)
            if progress is None:
                progress = self._known[session] = Progress(head.cursor.chunks, head.windows)
            return 0.0 if await self._step(session, store, progress) else None
        except NotOwned:
            self._known.pop(session, None)
            return None
        except StateLost:
            self._known.pop(session, None)
            return 0.0
        except Exception as error:
            return await self._failed(session, progress, error)

    async def _failed(self, session: str, progress: Progress | None, error: Exception) -> float | None:
        failures = 1
        if progress is not None:
            progress.failures += 1
            failures = progress.failures
            progress.missing += isinstance(error, LookupError)
        if isinstance(error, AudioError) or (progress is not None and progress.missing >= ATTEMPTS):
            try:
                await self._fail(session, str(error))
            except Unavailable:
                return retry.pause(1)
            self._known.pop(session, None)
            return None
        if progress is not None and self._known.get(session) is progress:
            # Restart from the rows.
            self._known[session] = fresh = Progress(0, 0)
            fresh.failures, fresh.missing = progress.failures, progress.missing
            try:
                head = self._store_of(session).head(session)
                assert head is not None
                fresh.taken, fresh.windows = head.cursor.chunks, head.windows
            except Exception:
                self._known.pop(session, None)
        return retry.pause(failures)

    async def _hear(self, session: str, progress: Progress, cursor: Cursor, notes: Sequence[SourceNote]) -> None:
        first = progress.windows
        heard = tuple(msgspec.structs.replace(note, window=first) for note in notes)
        await self._writer.write(session, NewWindows(first, MODEL, b"", cursor, notes=heard))

    async def _step(self, session: str, store: SessionStore, progress: Progress) -> bool:
        head = store.head(session)
        if head is None or (head.kind == "file" and head.state is not SessionState.READONLY):
            return False
        limit = head.next
        if head.has_unheard:
            notes = store.notes(session, head.heard)
            if some := [note for note in notes if note.chunk <= progress.taken]:
                await self._hear(session, progress, head.cursor, some)
                return True
            limit = min([limit, *(note.chunk for note in notes)])
        rows = store.audio(session, progress.taken, min(limit, progress.taken + STEP_CHUNKS))
        if progress.taken < limit and not rows:
            raise LookupError(f"chunk {progress.taken} of {head.next} has no row")
        if not rows and head.state is not SessionState.READONLY:
            return False
        number = store.partition.number
        scores = b"".join([window(await self._audio.chunk(number, row), self._kind) for row in rows])
        taken = progress.taken + len(rows)
        cursor = Cursor(taken, taken, taken, 1)
        await self._writer.write(session, NewWindows(progress.windows, MODEL, scores, cursor, not rows, TAGS))
        progress.taken = taken
        progress.windows += len(rows)
        progress.failures = progress.missing = 0
        return bool(rows) and (progress.taken < head.next or head.has_unheard or head.state is SessionState.READONLY)
