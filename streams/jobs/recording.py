"""Reads the audio of jobs on behalf of others than their services, while it is kept."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final

from streams.jobs.run_context import StoreOf, read_parts, read_rows
from streams.jobs.spool import Spool
from streams.log import RecordReader
from streams.quota import MOST_WAITING, SharedQuota
from topics.errors import AudioError, Unavailable
from topics.jobs.records import PART_BYTES
from topics.keys import new_id

#: Maximum number of concurrent recordings: each may take as much of the spool's disk as an upload.
MAX_RECORDINGS: Final = 2
NOT_KEPT: Final = "the audio of the job was not kept"


class JobRecordings:
    """Opens the recordings of jobs; running services share the files. Loop only."""

    def __init__(self, store_of: StoreOf, log: RecordReader, spool: Spool) -> None:
        self._store_of = store_of
        self._log = log
        self._spool = spool
        self._quota = SharedQuota(MAX_RECORDINGS, MOST_WAITING)

    @asynccontextmanager
    async def open(self, job: str) -> AsyncIterator[int]:
        """Provide the descriptor of a file with a job's audio.

        Raises:
            AudioError: the audio was not kept, or the log no longer holds it.
            Unavailable: too many callers wait, the job's partition is elsewhere, or the log or the spool's disk does
                not answer.
        """
        async with self._quota.admit(self._store_of(job).project(job) or ""), self._opened(job) as file:
            yield file

    async def read(self, job: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield bytes [start, end) of a job's original audio, a part at a time.

        Between parts, no file or log reader is held, however slowly the caller takes them.

        Raises:
            AudioError: the audio was not kept, or the log no longer holds it.
            Unavailable: the job's partition is elsewhere, or the log does not answer.
        """
        for number in range(start // PART_BYTES, -(-end // PART_BYTES)):
            store = self._store_of(job)
            head, rows = store.head(job), store.audio(job, number, number + 1)
            if head is None or not head.needs_audio or not rows:
                raise AudioError(NOT_KEPT)
            at = number * PART_BYTES
            async with aclosing(read_rows(self._log, store, rows)) as reading:
                parts = [part async for part in reading]
            yield parts[0][max(start - at, 0) : end - at]

    @asynccontextmanager
    async def _opened(self, job: str) -> AsyncIterator[int]:
        store = self._store_of(job)
        head, accepted = store.head(job), store.accepted(job)
        if head is None or accepted is None or not head.needs_audio:
            raise AudioError(NOT_KEPT)
        reader = new_id()
        try:
            parts = partial(read_parts, self._store_of, self._log, job, accepted.parts)
            path = await self._spool.take(job, reader, accepted.source.size, parts)
            try:
                file = path.open("rb")
            except OSError as error:
                raise Unavailable(f"the spool cannot be read: {error.strerror}") from error
            with file:
                yield file.fileno()
        finally:
            self._spool.give_back(job, reader)
