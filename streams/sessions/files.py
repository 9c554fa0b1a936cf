"""File sessions: gathers their chunks into a file, which is decoded step by step."""

import asyncio
import math
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np

from streams.audio import pcm
from streams.audio.decode import OpenFile
from streams.models.protocol import Floats
from streams.sessions.audio import AudioSource
from streams.sessions.ready import ReadySessions
from streams.sessions.store import SessionStore
from streams.workers.messages import Scored
from topics import media
from topics.errors import AudioError
from topics.sessions.records import Cursor, Opened
from topics.sessions.rules import SessionHead

SPOOL_IN_MEMORY: Final = 4 * 1024 * 1024
#: Windows gathered before a file's results are emitted.
STEP_WINDOWS: Final = 64
#: Samples decoded in one step; it may exceed this by a block.
STEP_SAMPLES: Final = 1 << 18
BLOCK_SAMPLES: Final = 1 << 17
#: Files whose decoders are kept between steps: some 10 MB each.
MOST_HELD: Final = 32
#: Pause of a session that waits for a decoder; it is queued when one is free.
DECODER_FREE: Final = math.inf
#: Chunks of a file whose references are read at a time, and bytes of them written at a time.
GATHERED_CHUNKS: Final = 1000
GATHERED_BYTES: Final = 4 * 1024 * 1024


def bytes_to_analyse(head: SessionHead, declared: media.Media) -> int:
    """Return how much of a session's audio counts: up to `total_size`, and of raw PCM whole frames only.

    Some clients pad the last chunk with zeros.
    """
    if head.total_size is None or head.received <= head.total_size:
        return head.received
    frame = pcm.frame_bytes(declared.sample_format, declared.channels) if declared.container == "raw" else 1
    return head.total_size - head.total_size % frame


class SessionFile:
    """The opened audio of a file session. One thread at a time."""

    def __init__(self, session: str, spool: BinaryIO, declared: media.Media, open_file: OpenFile, windows: int) -> None:
        """Open the file to continue after its first `windows` windows; `close` also closes the spool.

        Raises:
            AudioError: it cannot be opened.
            Unavailable: no decoder is available.
        """
        self.session = session
        self.ended = False
        #: Why the audio ended early.
        self.error: str | None = None
        self._spool = spool
        self._audio = open_file(spool, declared, block_samples=BLOCK_SAMPLES)
        self._blocks: Iterator[Floats] = self._audio.blocks()
        #: Index of the first window not emitted yet, and the windows from there.
        self._first = windows
        self._packed = b""

    @property
    def rate(self) -> int:
        return self._audio.rate

    def read(self) -> Floats:
        """Return the samples of the next step; `ended` is True once they are the last."""
        blocks: list[Floats] = []
        try:
            while sum(map(len, blocks)) < STEP_SAMPLES and not self.ended:
                block = next(self._blocks, None)
                if block is None:
                    self.ended = True
                else:
                    blocks.append(block)
        except AudioError as cause:
            self.error, self.ended = str(cause), True
        return blocks[0] if len(blocks) == 1 else np.concatenate([np.empty(0, np.float32), *blocks])

    def gather(self, scores: Scored, tags: int, chunks: int) -> Scored | None:
        """Add the scores of a step; return the gathered windows once they are enough, or at the end."""
        self._packed += scores.packed
        if len(self._packed) < STEP_WINDOWS * tags and not self.ended:
            return None
        packed, self._packed = self._packed, b""
        first = self._first
        self._first += len(packed) // tags
        # Damaged audio stays until the session has failed, because the failure may have to be found again.
        taken = chunks if self.ended and self.error is None else 0
        return Scored(first, packed, Cursor(taken, taken, 0, self.rate), taken, error=self.error)

    def close(self) -> None:
        """Release the spool and the decoder. Idempotent."""
        self._audio.close()
        self._spool.close()


class FileSessions:
    """Opens and reads session files in a bounded number of threads. Loop only."""

    def __init__(self, audio: AudioSource, spool: Path, open_file: OpenFile, ready: ReadySessions) -> None:
        self._audio = audio
        self._spool = spool
        self._open_file = open_file
        self._ready = ready
        # They mostly wait for decoders.
        self._threads = ThreadPoolExecutor(MOST_HELD, "decoding")
        #: Sessions that hold a decoder between steps, and those that wait for one.
        self._holding: set[str] = set()
        self._awaiting: deque[str] = deque()

    async def open(self, store: SessionStore, session: str, head: SessionHead, opened: Opened) -> SessionFile | None:
        """Gather a file's chunks, in memory if small, else in an unnamed file, and open it.

        Return None if no decoder is free; the session is queued when there is one.
        """
        declared = media.parse(opened.content_type)
        if declared.container != "raw" and not self._hold(session):
            self._awaiting.append(session)
            return None
        # Closed with the session's analysis, which outlives this call.
        spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(SPOOL_IN_MEMORY, dir=str(self._spool)))  # noqa: SIM115
        try:
            await self._fill(spool, store, session, head, bytes_to_analyse(head, declared))
            opener = partial(self._open_file, owner=opened.project)
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, SessionFile, session, spool, declared, opener, head.windows
            )
        except BaseException:
            spool.close()
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
                self._audio.cache.drop(partition, row.offset)
            taken += len(chunks)
        spool.seek(0)

    async def read(self, file: SessionFile) -> Floats:
        """Return the samples of a file's next step, float32[n]."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, file.read)

    def close_file(self, file: SessionFile) -> None:
        file.close()
        self._release(file.session)

    async def close(self) -> None:
        """Shut down the threads without waiting, since some may hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _hold(self, session: str) -> bool:
        """Return whether a session may hold a decoder between its steps."""
        if session not in self._holding and len(self._holding) >= MOST_HELD:
            return False
        self._holding.add(session)
        return True

    def _release(self, session: str) -> None:
        self._holding.discard(session)
        self.wake()

    def wake(self) -> None:
        """Queue as many waiting sessions as there are free decoders. One that finds none waits again."""
        free = MOST_HELD - len(self._holding)
        while self._awaiting and free > 0:
            awaiting = self._awaiting.popleft()
            if self._ready.is_waiting(awaiting):
                self._ready.queue_up(awaiting)
                free -= 1
