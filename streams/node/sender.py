"""Records on their way to the log, and the verdicts on commands on their way back."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from streams.folding.awaited_verdicts import Verdicts
from streams.log import Ack, LogWriter
from topics import record_codec
from topics.errors import Unavailable
from topics.folding import Verdict
from topics.jobs.records import JobCommand
from topics.keys import partition_of
from topics.records import Record
from topics.sessions.records import SessionCommand

VERDICT_SECONDS: Final = 4.5


class RecordSender:
    """Appends records of sessions and jobs, each to the partition of its id."""

    def __init__(self, application: Any, partitions: int, ordered: bool) -> None:
        self.verdicts = Verdicts()
        self._application = application
        self._partitions = partitions
        #: The log keeps the order of records across topics and partitions through a crash.
        self._ordered = ordered

    @property
    def writer(self) -> LogWriter:
        """What writes the log."""
        writer: LogWriter = self._application.producer.writer
        return writer

    def append(self, topic: str, id: str, record: Record, *, bounded: bool) -> asyncio.Future[Ack]:
        """Enqueue a record at once; the future resolves when it is durable, and raises Unavailable when it cannot be.

        Raises:
            Unavailable: the queue is full (only when `bounded`).
        """
        partition = partition_of(id, self._partitions)
        return self.writer.append(topic, partition, id.encode(), record_codec.encode(record), bounded=bounded)

    async def emit(self, topic: str, id: str, result: Record, *, first: bool) -> None:
        """Append a result; returns once it is durable. `first`: nothing may have been emitted for the id before.

        Raises:
            Unavailable: the log does not take it.
        """
        if first and not self._ordered:
            # Nothing of a session or job may be in the results before it is in the changelog, or a table that is
            # rebuilt after a crash would drop results as those of a deleted one.
            await self.writer.flush()
        await self.append(topic, id, result, bounded=False)

    async def send(self, topic: str, id: str, record: Record) -> None:
        """Append a record of a client; returns once it is durable.

        Raises:
            Unavailable: queues are full, or the log does not take it in time.
        """
        appended = self.append(topic, id, record, bounded=True)
        late = asyncio.get_running_loop().call_later(VERDICT_SECONDS, _give_up, appended)
        try:
            await appended
        finally:
            late.cancel()

    async def submit(self, topic: str, id: str, command: SessionCommand | JobCommand) -> Verdict:
        """Append a command and return the verdict of its fold.

        Raises:
            Unavailable: queues are full, the log does not take the record, or no verdict in time.
        """
        verdict = self.verdicts.expect(command.command)
        try:
            appended = self.append(topic, id, command, bounded=True)
            appended.add_done_callback(lambda done: _pass_on_failure(done, verdict))
            # Not asyncio.timeout, which costs more than the rest of this method.
            late = asyncio.get_running_loop().call_later(VERDICT_SECONDS, _give_up, verdict)
            try:
                return await verdict
            finally:
                late.cancel()
        finally:
            self.verdicts.forget(command.command)


def _pass_on_failure(appended: asyncio.Future[Ack], verdict: asyncio.Future[Verdict]) -> None:
    """Fail the verdict of a command that the log did not take."""
    if not appended.cancelled() and (error := appended.exception()) is not None and not verdict.done():
        verdict.set_exception(error)


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(Unavailable("the log did not take the record in time"))
