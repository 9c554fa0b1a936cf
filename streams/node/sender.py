"""Sends records to the log, and returns the verdicts on commands."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from streams.disk import DiskFull
from streams.folding.awaited_verdicts import VerdictCall, Verdicts, settle
from streams.log import Ack, LogWriter, record_cost
from streams.node.owner import PartitionOwner
from streams.node.owners import Owners
from streams.quota import SharedQuota
from streams.tables.database import DISK_FULL
from topics import record_codec
from topics.errors import Damaged, EarshotError, Unavailable
from topics.folding import Answer, Verdict
from topics.jobs.records import Accepted, JobCommand, Part, Removed
from topics.records import Record
from topics.sessions.records import Deleted, Opened, SessionCommand

VERDICT_SECONDS: Final = 4.5
NOT_IN_TIME: Final = "the log was too slow; the write may still succeed"


class RecordSender:
    """Appends records of sessions and jobs to the partitions of their ids, which this node must own. Loop only."""

    def __init__(self, writer: LogWriter, owners: Owners, part_bytes: int, share_bytes: int) -> None:
        """Append to `writer`. At most `part_bytes` of recording parts wait for the log, or one part.

        At most `share_bytes` of each project's other commands wait for it, or one command.
        """
        self.verdicts = Verdicts()
        self.writer = writer
        self._owners = owners
        self.quota = SharedQuota(part_bytes)
        #: Bytes of commands that wait for the log, by project.
        self._waiting: dict[str, int] = {}
        self._share_bytes = share_bytes

    def append(self, topic: str, id: str, record: Record) -> asyncio.Future[Ack]:
        """Enqueue a record of the service itself, regardless of queue limits; the future raises if it is not durable.

        Raises:
            NotOwned: another node owns the partition.
            Unavailable: the partition does not serve.
        """
        return self._enqueue(self._owners.serving(id), topic, id, record, record_codec.encode(record), bounded=False)

    def _enqueue(
        self,
        owner: PartitionOwner,
        topic: str,
        id: str,
        record: Record,
        value: bytes,
        *,
        bounded: bool,
        project: str = "",
    ) -> asyncio.Future[Ack]:
        if bounded and owner.rows.disk_full is not None:
            raise DiskFull(DISK_FULL)
        owner.touch(id)
        return self.writer.append(
            topic, owner.number, id.encode(), value, bounded=bounded, project=project, content=record
        )

    def note(self, topic: str, id: str, record: Record) -> None:
        """Enqueue a record on a best-effort basis, even for a partition that was just lost."""
        if not self._owners.may_append():
            return
        with suppress(EarshotError):
            value = record_codec.encode(record)
            appended = self.writer.append(
                topic, self._owners.number(id), id.encode(), value, bounded=False, content=record
            )
            appended.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def upload(self, topic: str, id: str, part: Part, project: str) -> None:
        """Append a part of a project's recording and return once it is durable.

        Parts wait here, in turn by project, and not in the log's queue, so that live audio always finds room there.

        Raises:
            Damaged: the job was set aside.
            Unavailable: there is no owner, queues are full, or the log does not accept the part in time.
        """
        loop, size = asyncio.get_running_loop(), len(part.data)
        deadline = loop.time() + VERDICT_SECONDS
        _check_intact(self._owners.serving(id), topic, id, part)
        await self.quota.enter(project, size, deadline)
        try:
            owner, value = self._owners.serving(id), record_codec.encode(part)
            appended = self._enqueue(owner, topic, id, part, value, bounded=True, project=project)
        except BaseException:
            self.quota.leave(size)
            raise

        def release(done: asyncio.Future[Ack]) -> None:
            done.exception()  # Mark it retrieved: the caller may have stopped waiting.
            self.quota.leave(size)

        # The part stays in the log's queue even if the caller gives up.
        appended.add_done_callback(release)
        await asyncio.wait({appended}, timeout=deadline - loop.time())
        if not appended.done():
            raise Unavailable(NOT_IN_TIME, uncertain=True)
        appended.result()

    async def submit(self, topic: str, id: str, command: SessionCommand | JobCommand) -> Verdict:
        """Append a command and return its fold's verdict.

        Raise Damaged if its id was set aside, and Unavailable if there is no owner, queues are full, the log rejects
        it, or no verdict comes in time.
        """
        # Not asyncio.timeout, which costs more than the rest of this method.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + VERDICT_SECONDS
        owner = self._owners.serving(id)
        _check_intact(owner, topic, id, command)
        project = _project(owner, id, command)
        if type(command) is Accepted:
            # Follow the job's parts, which may wait.
            await self.quota.enter(project, 0, deadline)
            owner = self._owners.serving(id)
        verdict: asyncio.Future[Verdict] = loop.create_future()
        call = self._call(owner, topic, id, command, project, partial(settle, verdict))
        late = loop.call_at(deadline, _give_up, call)
        try:
            return await verdict
        except asyncio.CancelledError:
            _give_up(call)
            raise
        finally:
            late.cancel()

    def send(self, topic: str, id: str, command: SessionCommand, answered: Callable[[Answer], None]) -> None:
        """Append a command and call `answered` later with its fold's verdict or an error; there is no timeout.

        Commands appear on the log in the order of the calls.

        Raises:
            Damaged: the session was set aside; nothing was appended.
            NotOwned: another node owns the partition.
            Unavailable: the partition does not serve now, or queues are full; nothing was appended.
        """
        owner = self._owners.serving(id)
        _check_intact(owner, topic, id, command)
        self._call(owner, topic, id, command, _project(owner, id, command), answered)

    def _call(
        self,
        owner: PartitionOwner,
        topic: str,
        id: str,
        command: SessionCommand | JobCommand,
        project: str,
        answered: Callable[[Answer], None],
    ) -> VerdictCall:
        """Append a command within its project's share; its answer is the log's error if the log rejects it."""

        def finish(answer: Answer) -> None:
            owner.awaited.discard(call)
            self.verdicts.forget(command.command)
            if isinstance(command, Deleted | Removed) and owner.unread_gaps:
                # The deletion may be behind the epoch of a later owner, and so be none for stand-bys.
                answer = Unavailable("another owner may have written records", uncertain=True)
            answered(answer)

        value = record_codec.encode(command)
        before, size = self._waiting.get(project, 0), record_cost(id.encode(), value)
        if before and before + size > self._share_bytes:
            raise Unavailable("the project's share of the log's queue is full")
        appended = self._enqueue(owner, topic, id, command, value, bounded=True, project=project)
        self._waiting[project] = before + size
        call = self.verdicts.call(command.command, finish)
        owner.awaited.add(call)

        def appended_or_not(done: asyncio.Future[Ack]) -> None:
            rest = self._waiting[project] - size
            if rest:
                self._waiting[project] = rest
            else:
                del self._waiting[project]
            if not done.cancelled() and (error := done.exception()) is not None:
                call.answer(error if isinstance(error, EarshotError) else Unavailable(str(error)))

        appended.add_done_callback(appended_or_not)
        return call


def _project(owner: PartitionOwner, id: str, command: SessionCommand | JobCommand) -> str:
    """Return the project that sends a command, "" if unknown."""
    if isinstance(command, (Opened, Accepted)):
        return command.project
    opened = None if isinstance(command, Removed) else owner.sessions.opened(id)
    return "" if opened is None else opened.project


def _check_intact(owner: PartitionOwner, topic: str, id: str, command: SessionCommand | JobCommand) -> None:
    """Raise Damaged if an id was set aside: its commands would go to the dead-letter topic. Deletions are tried."""
    if not isinstance(command, Deleted | Removed) and not owner.store(topic).takes_commands(id):
        raise Damaged


def _give_up(call: VerdictCall) -> None:
    call.answer(Unavailable(NOT_IN_TIME, uncertain=True))
