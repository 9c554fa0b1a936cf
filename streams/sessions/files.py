"""File sessions: gathers their chunks into a file, which a worker analyses step by step."""

import asyncio
import math
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, cast

from streams.audio.decode import MAX_FILE_S
from streams.sessions.audio import AudioCache
from streams.sessions.ready import ReadySessions
from streams.sessions.store import SessionStore
from streams.workers.messages import ScoredWindows
from streams.workers.process import WorkerDied
from streams.workers.recordings import STEP_SAMPLES
from streams.workers.worker_slot import WorkerSlot
from streams.workers.workers import Workers
from topics import media
from topics.sessions.records import Cursor, Opened
from topics.sessions.rules import SessionHead

#: Windows gathered before a file's results are emitted.
STEP_WINDOWS: Final = 64
#: Files whose workers are kept between steps: some 10 MB each.
MOST_HELD: Final = 32
#: Files that are written at a time.
GATHERING: Final = 4
#: Pause of a session that waits for a worker; it is queued when one is free.
DECODER_FREE: Final = math.inf
#: Steps and windows that the longest file has.
MOST_STEPS: Final = 2 + MAX_FILE_S * media.MAX_RATE // STEP_SAMPLES
MOST_WINDOWS: Final = 2 * MAX_FILE_S + 2
#: Chunks of a file whose references are read at a time, and bytes of them written at a time.
GATHERED_CHUNKS: Final = 1000
GATHERED_BYTES: Final = 4 * 1024 * 1024


def bytes_to_analyse(head: SessionHead, declared: media.Media) -> int:
    """Return how much of a session's audio counts: up to `total_size`, and of raw PCM whole frames only.

    Some clients pad the last chunk with zeros.
    """
    if head.total_size is None or head.received <= head.total_size:
        return head.received
    return head.total_size - head.total_size % declared.frame_bytes


class SessionFile:
    """The audio of a file session, in the file of a worker, and the windows that were not emitted yet. Loop only."""

    def __init__(self, session: str, slot: WorkerSlot, windows: int) -> None:
        """Continue after the first `windows` windows."""
        self.session = session
        self.slot = slot
        self.ended = False
        #: Index of the first window not emitted yet, and the windows from there.
        self._first = windows
        self._packed = b""
        #: Steps taken: a compromised worker could give endlessly many.
        self._steps = 0

    def gather(self, scores: ScoredWindows, tags: int, chunks: int) -> ScoredWindows | None:
        """Add the scores of a step; return the gathered windows once they are enough, or at the end.

        Raises:
            WorkerDied: there are more windows or steps than a file can have.
        """
        self._packed += scores.packed
        self._steps += 1
        self.ended = not scores.reading
        windows = len(self._packed) // tags
        if self._steps > MOST_STEPS or self._first + windows > MOST_WINDOWS:
            raise WorkerDied
        if windows < STEP_WINDOWS and not self.ended:
            return None
        packed, self._packed = self._packed, b""
        first = self._first
        self._first += windows
        # Damaged audio stays until the session has failed, because the failure may have to be found again.
        taken = chunks if self.ended and scores.error is None else 0
        silent = tuple((max(start, first), end) for start, end in scores.silent if end > first)
        cursor = Cursor(taken, taken, 0, scores.cursor.rate)
        return ScoredWindows(first, packed, cursor, taken, error=scores.error, silent=silent)


class FileSessions:
    """Gathers session files in a bounded number of threads, and gives them to workers. Loop only."""

    def __init__(self, audio: AudioCache, spool: Path, workers: Workers, ready: ReadySessions) -> None:
        self._audio = audio
        self._spool = spool
        self._workers = workers
        self._ready = ready
        # They wait for the disk.
        self._threads = ThreadPoolExecutor(GATHERING, "gathering")
        #: Sessions that hold a worker between steps, and those that wait for one.
        self._holding: set[str] = set()
        self._awaiting: deque[str] = deque()

    async def open(self, store: SessionStore, session: str, head: SessionHead, opened: Opened) -> SessionFile | None:
        """Gather a file's chunks in an unnamed file.

        Return None if no worker is free; the session is queued when there is one.
        """
        if not self._hold(session):
            self._awaiting.append(session)
            return None
        try:
            with ExitStack() as stack:
                file = cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=self._spool)))
                rest = bytes_to_analyse(head, media.parse(opened.content_type))
                await self._fill(file, store, session, head, rest)
                stack.pop_all()
            return SessionFile(session, self._workers.open_slot(file, opened.project), head.windows)
        except BaseException:
            self._release(session)
            raise

    async def _fill(self, spool: BinaryIO, store: SessionStore, session: str, head: SessionHead, rest: int) -> None:
        taken, partition = 0, store.partition.number
        while taken < head.next:
            chunks = store.audio(session, taken, min(head.next, taken + GATHERED_CHUNKS))
            if not chunks:
                raise LookupError(f"chunk {taken} of {head.next} has no row")
            pieces, size = list[bytes](), 0
            for place, row in enumerate(chunks):
                pieces.append((await self._audio.chunk(partition, row, chunks[place + 1 :]))[:rest])
                rest, size = rest - len(pieces[-1]), size + len(pieces[-1])
                if size >= GATHERED_BYTES or row is chunks[-1]:
                    # In a thread: a disk takes seconds for a large file.
                    await asyncio.get_running_loop().run_in_executor(self._threads, spool.writelines, pieces)
                    pieces, size = [], 0
            for row in chunks:
                self._audio.drop(partition, row.offset)
            taken += len(chunks)
        await asyncio.get_running_loop().run_in_executor(self._threads, spool.flush)

    def close_file(self, file: SessionFile) -> None:
        self._workers.close_slot(file.slot)
        self._release(file.session)

    async def close(self) -> None:
        """Shut down the threads without waiting, since some may hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _hold(self, session: str) -> bool:
        """Return whether a session may hold a worker between its steps."""
        if session not in self._holding and len(self._holding) >= MOST_HELD:
            return False
        self._holding.add(session)
        return True

    def _release(self, session: str) -> None:
        self._holding.discard(session)
        self.wake()

    def wake(self) -> None:
        """Queue as many waiting sessions as there are free workers. One that finds none waits again."""
        free = MOST_HELD - len(self._holding)
        while self._awaiting and free > 0:
            awaiting = self._awaiting.popleft()
            if self._ready.is_waiting(awaiting):
                self._ready.queue_up(awaiting)
                free -= 1
