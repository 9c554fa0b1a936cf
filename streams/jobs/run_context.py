"""One run of a job's service: its context, and the results it appends to the log."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from streams.folding import retry
from streams.folding.logged_audio import read_log
from streams.jobs.job_store import JobStore
from streams.jobs.spool import Spool
from streams.log import RecordReader
from topics import record_codec
from topics.catalog import JOB_COMMANDS, TopicPartition
from topics.errors import AudioError, Unavailable
from topics.folding import AudioRow
from topics.jobs.options import Service
from topics.jobs.records import Accepted, JobResult, Part, Portion
from topics.jobs.rules import EntryState

#: Attempts to append a result before the run gives up: an outage of seconds should not repeat an engine's work.
APPENDS: Final = 5

#: Appends a job's result to the result topic; returns once it is durable.
Emit = Callable[[str, JobResult], Awaitable[None]]
#: Appends a result without waiting, even if this process is stopping or has lost the job's partition.
Note = Callable[[str, JobResult], None]
#: Returns the store of a job; raises Unavailable if its partition is elsewhere.
StoreOf = Callable[[str], JobStore]


class JobRun:
    """One run of one service of one job; implements `ServiceRun`. Loop only."""

    def __init__(
        self,
        job: str,
        service: Service,
        accepted: Accepted,
        store_of: StoreOf,
        log: RecordReader,
        emit: Emit,
        spool: Spool,
        run: str,
    ) -> None:
        self.job = job
        self.service = service
        self.accepted = accepted
        self.run = run
        #: Number of portions appended.
        self.count = 0
        self._store_of = store_of
        self._log = log
        self._emit = emit
        self._spool = spool

    async def audio(self) -> Path:
        return await self._spool.take(self.job, self.run, self.accepted.source.size, self._parts)

    def check_room(self, size: int) -> None:
        self._spool.check_room(size)

    def close(self) -> None:
        self._spool.give_back(self.job, self.run)

    def portions(self, service: Service) -> Sequence[bytes]:
        store = self._store_of(self.job)
        head = store.head(self.job)
        entry = None if head is None else head.entry(service)
        if entry is None or entry.state is not EntryState.SUCCESS:
            return ()
        portions = (store.portion(self.job, service, number) for number in range(entry.portions))
        return [data for data in portions if data is not None]

    def audio_ms(self) -> int:
        head = self._store_of(self.job).head(self.job)
        return 0 if head is None else max(entry.audio_ms for entry in head.entries)

    async def emit(self, data: bytes, done: float) -> None:
        await self.append(Portion(self.service, self.run, self.count, data, done))
        self.count += 1

    async def append(self, result: JobResult) -> None:
        """Append a result of the run. If the log rejects it, append it again; a second copy changes nothing.

        Raises:
            Unavailable: the log has not accepted it for some seconds.
        """
        failures = 0
        while True:
            try:
                await self._emit(self.job, result)
                return
            except (Unavailable, OSError) as error:
                failures += 1
                if failures == APPENDS:
                    raise Unavailable(f"the log does not take results: {error}") from error
            await asyncio.sleep(retry.pause(failures))

    def _parts(self) -> AsyncGenerator[bytes, None]:
        return read_parts(self._store_of, self._log, self.job, self.accepted.parts)


async def read_parts(store_of: StoreOf, log: RecordReader, job: str, count: int) -> AsyncGenerator[bytes, None]:
    """Yield the audio of a job with `count` parts.

    Raises:
        AudioError: the log no longer holds it.
        Unavailable: the log does not answer.
    """
    store = store_of(job)
    rows = store.audio(job, 0, count)
    if len(rows) < count:
        raise AudioError(f"the job's audio is not complete: part {len(rows)} of {count} is missing")
    async with aclosing(read_rows(log, store, rows)) as parts:
        async for part in parts:
            yield part


async def read_rows(log: RecordReader, store: JobStore, rows: Sequence[AudioRow]) -> AsyncGenerator[bytes, None]:
    """Yield the parts of given rows in order; raises the errors of `read_parts`."""
    try:
        async with aclosing(read_log(log, TopicPartition(JOB_COMMANDS, store.partition.number), rows, _audio)) as parts:
            async for part in parts:
                yield part
    except OSError as error:
        raise Unavailable(f"the log does not give the audio: {error}") from error


def _audio(value: bytes) -> bytes | None:
    command = record_codec.decode_job_command(value)
    return command.data if isinstance(command, Part) else None
