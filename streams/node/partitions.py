"""Assignment, takeover, folding and loss of a node's partitions, and its standby tables."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

import structlog

from streams.disk import DatabaseDamaged
from streams.folding import retry
from streams.folding.followers import Followers
from streams.log import StoredRecord
from streams.node.backend import LogBackend, Membership
from streams.node.handover import Handover
from streams.node.owner import PartitionOwner, waits
from streams.node.owners import Owners
from streams.node.partition_consumer import PartitionConsumer, PartitionStopped
from streams.node.position_notes import note_positions
from streams.node.standbys import Standbys
from streams.node.stop_notes import StopNotes
from streams.node.takeover import Takeover
from streams.node.tasks import Tasks
from streams.node.workload import Workload
from streams.ownership import Assignment
from streams.tables.database import Databases
from streams.tables.partition_rows import TableOutdated
from streams.tables.tables import Tables
from topics.catalog import CHANGELOG, FOLD_ORDER, TopicPartition
from topics.errors import RecordError, Unavailable
from topics.ports.stops import Decision, Stops

log = structlog.get_logger(__name__)

#: Seconds between notes of the folded positions, before which changed heads are logged: a crash repeats the work since
#: the last note. And seconds to the note after a deletion, of which a repetition may lose what was to be billed.
NOTE_SECONDS: Final = 2.0
DELETION_SECONDS: Final = 0.5
#: Late rows that are rewritten before other tasks run.
REWRITTEN: Final = 1024
ELSEWHERE: Final = "it went to another node"
#: Seconds between checks for records that other nodes wrote to an owned partition.
POLL_SECONDS: Final = 5.0


class Partitions:
    """Manages the partitions of a node from assignment to loss. Loop only; implements `streams.log.LogUser`.

    Without `stops` a stopped partition waits for a restart.
    """

    def __init__(
        self,
        owners: Owners,
        backend: LogBackend,
        databases: Databases,
        works: Sequence[Workload[Any]],
        followers: Followers,
        tasks: Tasks,
        membership: Membership,
        stops: Stops | None = None,
    ) -> None:
        self.owners = owners
        self.backend = backend
        #: Set once, when a partition first serves.
        self.served = asyncio.Event()
        self._works = works
        self._followers = followers
        self._tasks = tasks
        self._membership = membership
        self.stops = StopNotes(backend, stops)
        folds = {topic: fold for work in works for topic, fold in work.folds.items()}
        self.tables = Tables(databases, backend.writer, backend.now_ms)
        self.takeover = Takeover(backend, folds, not backend.exclusive, self.tables.note_missing)
        self.standbys = Standbys(self.tables, backend.follower)
        #: Partitions that this node gets once their tables are up to date.
        self._coming: frozenset[int] = frozenset()
        #: Assignments since the start, and the records that each stand-by table lacked when last looked at.
        self.assignments, self.behind = 0, dict[int, int]()
        self._handover = Handover(owners, tasks, membership, self._assign)

    def may_append(self) -> bool:
        return self.owners.may_append()

    def fail(self, error: BaseException) -> None:
        self._tasks.fail(error)

    async def start(self) -> None:
        """Start taking over assigned partitions. The log must be started already, with this object as its user."""
        await self._membership.start(self.assign, self.lose_all, self.fail)
        if not self.backend.exclusive:
            self._tasks.spawn(self._look(), "look")
        self._tasks.spawn(self.standbys.run(), "standbys")
        self._tasks.spawn(self._note(), "positions")

    async def stop(self) -> None:
        """Note the folded positions and close everything. The tasks must be stopped already."""
        if self._tasks.failure is None and self.may_append():
            for owner in self.owners.all_serving():
                await note_positions(owner, self.backend, self.may_append)
            try:
                await self.backend.writer.flush()
                await asyncio.sleep(0)  # Callbacks of acknowledgements run.
            except Exception as error:
                log.warning("log.not_flushed", error=repr(error))
        for owner in self.owners:
            owner.close("the node has stopped")
            if owner.has_table:
                self.standbys.demote(owner.rows)
        self.owners.here.clear()
        # Last, so that it leaves the group without partitions.
        await self._membership.stop()
        await self.standbys.stop()
        await self.backend.close()

    async def hand_over(self) -> bool:
        """Give all partitions to other nodes, because this one is about to stop; serve them until then.

        Return whether others have them, so that requests can be forwarded. They get new sessions and jobs from now on.
        """
        self.owners.leaving = True
        if not self.owners.others or not self.may_append():
            return False
        for owner in self.owners.all_serving():
            await note_positions(owner, self.backend, self.may_append)
        return await self._handover.leave()

    def waits(self) -> str | None:
        if (reason := self._membership.waiting()) is not None:
            return reason
        if not self.owners.here and not self.owners.elsewhere:
            return "this node has no partitions: there are more nodes than partitions"
        return waits(self.owners)

    async def _note(self) -> None:
        due = 0.0
        while True:
            await asyncio.sleep(min(NOTE_SECONDS, DELETION_SECONDS))
            if is_due := due <= (now := asyncio.get_running_loop().time()):
                due = now + NOTE_SECONDS
            for owner in self.owners:
                if owner.serving and (damage := owner.rows.damage) is not None:
                    self._rebuild(owner, damage)
            if self._coming and not self._coming & self.standbys.behind():
                self._membership.take(self._coming)
                self._coming = frozenset()
            if self.may_append():
                for owner in self.owners.all_serving():
                    if is_due or owner.rows.has_deletions:
                        await note_positions(owner, self.backend, self.may_append)

    # --- assignments ------------------------------------------------------------------------------------------------

    def assign(self, assignment: Assignment) -> None:
        """Close partitions no longer owned, start taking over new ones, and keep the rest.

        Commands in flight get their verdicts first.
        """
        self._close(self._handover.forget(), ELSEWHERE)
        self._handover.begin(assignment)

    def _assign(self, assignment: Assignment) -> None:
        here = self.owners.here
        self.assignments += 1
        self._close([number for number in here if number not in assignment.owned], ELSEWHERE)
        self.owners.elsewhere, self.owners.generation = assignment.urls, assignment.generation
        self.owners.others, self._coming = assignment.others, assignment.coming
        self.owners.standbys_elsewhere = assignment.standby_urls
        fresh = sorted(assignment.owned - here.keys())
        self.standbys.assign(assignment.standbys, assignment.owned)
        for number in fresh:
            self._begin(number)
        # Those of stand-bys: there may be an owner now.
        self._followers.lose(lambda id: self.owners.number(id) not in here)
        self.owners.note_change()
        log.info("node.assigned", partitions=len(here), new=len(fresh), standbys=len(assignment.standbys))

    def _begin(self, number: int, pause: float = 0) -> None:
        owner = self.owners.here[number] = PartitionOwner(number, self.owners.partitions)
        self._spawn(owner, self._take_over(owner, pause), "takeover")

    def lose_all(self, reason: str) -> None:
        """Close all partitions: other nodes may own them."""
        if self.owners.here:
            log.warning("node.lost", reason=reason, partitions=len(self.owners.here))
        self._handover.forget()
        self.backend.drop(reason)
        self._close(list(self.owners.here), reason)

    def lapsed(self, reason: str) -> None:
        """Give up all partitions: the writer dropped rows that tables have, so a table may not match its changelog."""
        self._membership.give_up(reason)
        self.lose_all(reason)

    def _rebuild(self, owner: PartitionOwner, fault: Exception) -> None:
        self._close([owner.number], f"its table is being rebuilt: {fault}", fault)
        self._begin(owner.number, retry.FIRST_SECONDS)

    def _close(self, numbers: Sequence[int], reason: str, fault: Exception | None = None) -> None:
        if not numbers:
            return
        lost = {number: self.owners.here.pop(number) for number in numbers}
        for owner in lost.values():
            owner.close(f"partition {owner.number} is not here any more: {reason}")
            if owner.has_table:
                self.standbys.demote(owner.rows, fault)
        self._drop_work(numbers)

    def _drop_work(self, numbers: Sequence[int]) -> None:
        self._followers.lose(lambda id: self.owners.number(id) in numbers)
        for work in self._works:
            work.lose(numbers)
        self.owners.note_change()

    async def _take_over(self, owner: PartitionOwner, pause: float) -> None:
        began, failures = time.monotonic(), 0
        await asyncio.sleep(pause)
        while True:
            try:
                if not owner.has_table:
                    owner.take_rows(await self.standbys.promote(owner.number))
                await self.takeover.run(owner, self._survey)
                owner.serve()
                # Until now they read what is being taken over.
                self._followers.lose(lambda id: self.owners.number(id) == owner.number)
                unfinished = sum([await work.begin(owner) for work in self._works])
                break
            except (DatabaseDamaged, TableOutdated) as error:
                self._rebuild(owner, error)
                return
            except PartitionStopped as error:
                self._stop_serving(owner, error)
                break
            except RecordError as error:
                fault = f"its table has a row that cannot be read: {error}"
                self._stop_serving(owner, PartitionStopped(fault, CHANGELOG, owner.rows.applied.offset))
                break
            except Unavailable as error:
                failures += 1
                if self.owners.all_serving():
                    owner.steps += 1  # The log or the disk answers: a restart would only interrupt the others.
                owner.serving, owner.waiting = False, owner.waiting or "another attempt to begin its work"
                if not owner.has_table:
                    owner.waiting = f"its table: {error}"
                log.warning("takeover.again", partition=owner.number, error=repr(error))
                await asyncio.sleep(retry.pause(failures))
        self.owners.note_change()
        if owner.serving:
            seconds = round(time.monotonic() - began, 3)
            log.info("node.ready", partition=owner.number, seconds=seconds, unfinished=unfinished)
            if owner.aside.stop is not None:
                self.takeover.skipped = {one for one in self.takeover.skipped if one[0] != owner.number}
                self._spawn(owner, self._end_stop(owner, owner.positions()), "resumed")
        if not any(owner.is_coming for owner in self.owners):
            self.served.set()

    def _stop_serving(self, owner: PartitionOwner, error: PartitionStopped) -> None:
        """Stop serving a partition until an operator decides; the operator's page and the service log report it."""
        log.error("partition.stopped", partition=owner.number, error=str(error))
        owner.stopped, owner.serving, owner.waiting = str(error), False, None
        if owner.has_table:
            owner.rows.thaw()
        owner.refuse(f"partition {owner.number} has stopped: {error}")
        self._drop_work([owner.number])
        self._spawn(owner, self._await_decision(owner, error), "stopped")

    async def _await_decision(self, owner: PartitionOwner, error: PartitionStopped) -> None:
        """Take a stopped partition over again once an operator has decided on it."""
        decision = await self.stops.decision(owner, error)
        if decision is Decision.SKIP:
            self.takeover.skipped.add((owner.number, error.topic))
        self._close([owner.number], f"an operator said: {decision}")
        self._begin(owner.number)

    async def _end_stop(self, owner: PartitionOwner, positions: dict[str, int]) -> None:
        """Forget a stop once no owner folds its records again: until then the next one needs the decision too."""
        while any(owner.durable.get(topic, 0) < position for topic, position in positions.items()):  # noqa: ASYNC110 (soon)
            await asyncio.sleep(DELETION_SECONDS)
        await self.stops.note_end(owner)

    def stop_partition(self, number: int, reason: str) -> None:
        owner = self.owners.here.get(number)
        if owner is not None and owner.stopped is None:
            self._stop_serving(owner, PartitionStopped(reason, CHANGELOG, 0))

    async def _survey(self, owner: PartitionOwner) -> None:
        for work in self._works:
            await work.survey(owner)

    def deliver(self, tp: TopicPartition, records: Sequence[StoredRecord]) -> None:
        owner = self.owners.here.get(tp.partition)
        consumer = None if owner is None else owner.consumers.get(tp.topic)
        if owner is None or consumer is None or owner.stopped is not None:
            return
        try:
            if not consumer.deliver(records):
                self._begin_to_catch_up(owner, consumer)
        except Exception as error:
            self.fail(error)

    def _begin_to_catch_up(self, owner: PartitionOwner, consumer: PartitionConsumer) -> None:
        self._spawn(owner, self._catch_up(owner, consumer), f"catch-up-{consumer.tp.topic}")

    def _spawn(self, owner: PartitionOwner, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.spawn(work, f"{name}-{owner.number}")
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)

    async def _catch_up(self, owner: PartitionOwner, consumer: PartitionConsumer) -> None:
        """Fetch records of other nodes: commands before the results of jobs that follow from them."""
        try:
            async with owner.catching_up:
                if consumer.tp.topic not in FOLD_ORDER[0]:
                    await self._catch_up_commands(owner)
                await consumer.catch_up()
        except PartitionStopped as error:
            self._stop_serving(owner, error)
        except DatabaseDamaged as error:
            self._rebuild(owner, error)

    async def _catch_up_commands(self, owner: PartitionOwner) -> None:
        consumers = {owner.consumers[topic].tp: owner.consumers[topic] for topic in FOLD_ORDER[0]}
        bounds = await retry.until_available(lambda: self.backend.bounds(list(consumers)))
        for tp, commands in consumers.items():
            commands.fall_behind(bounds[tp][1])
            await commands.catch_up()

    def overtaken(self, tp: TopicPartition, start: int, stop: int) -> None:
        """Read what another owner, earlier or later, wrote to a changelog."""
        owner = self.owners.here.get(tp.partition)
        # A takeover reads everything before its epoch. There may be no table yet, while rows that this process
        # wrote as the previous owner are acknowledged.
        if owner is not None and owner.has_table and owner.rows.epoch:
            owner.unread_gaps.add((start, stop))
            self._spawn(owner, self._read_gap(owner, start, stop), "gap")

    async def _read_gap(self, owner: PartitionOwner, start: int, stop: int) -> None:
        """Rewrite rows that an earlier owner wrote late; give the partition up if a later owner wrote one."""
        tp = TopicPartition(CHANGELOG, owner.number)

        async def read() -> list[StoredRecord]:
            async with aclosing(self.backend.read(tp, start, stop)) as reading:
                return [record async for records in reading for record in records]

        records = await retry.until_available(read)
        others = [record for record in records if record.epoch != owner.rows.epoch]
        log.warning("changelog.overtaken", partition=owner.number, records=len(others), epoch=owner.rows.epoch)
        if any(record.epoch > owner.rows.epoch for record in others):
            self._close([owner.number], "a later owner has written to its changelog")
            # The group may have given it back meanwhile: a new assignment settles the owner and starts over.
            self._membership.rejoin()
            return
        late = sorted({record.key for record in others if record.key is not None})
        for place in range(0, len(late), REWRITTEN):
            if place:
                await asyncio.sleep(0)
            owner.rows.write_again(late[place : place + REWRITTEN])
        # A new set: positions noted before these rows do not confirm that the changelog has them.
        owner.unread_gaps = owner.unread_gaps - {(start, stop)}
        owner.noted = None

    async def _look(self) -> None:
        """Find records that a former owner appended late: no delivery here would reveal them."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            serving = self.owners.all_serving()
            consumers = {one.tp: (owner, one) for owner in serving for one in owner.consumers.values() if one.level}
            owned = [owner.rows for owner in serving]
            tables = {TopicPartition(CHANGELOG, one.number): one for one in (*owned, *self.standbys)}
            asked = self.backend.now_ms()
            try:
                bounds = await self.backend.bounds([*consumers, *tables]) if tables else {}
            except Unavailable as error:
                log.warning("log.away", error=str(error))
                continue
            for tp, (owner, consumer) in consumers.items():
                end = bounds[tp][1]
                # Records on their way were appended by this process; others are never delivered.
                if consumer.level and not owner.closed and consumer.seen_behind(end):
                    consumer.fall_behind(end)
                    self._begin_to_catch_up(owner, consumer)
            self.behind = {}
            for tp, rows in tables.items():
                end = bounds[tp][1]
                if end <= rows.applied.offset:
                    rows.note_fresh(asked)
                if (now := self.owners.here.get(tp.partition)) is None:
                    self.behind[tp.partition] = max(0, end - rows.applied.offset)
                elif now.serving:
                    self.backend.note_end(tp, end)

    def floor(self, tp: TopicPartition) -> int | None:
        owner = self.owners.here.get(tp.partition)
        return None if owner is None else owner.floor(tp.topic)

    def needed(self, tp: TopicPartition, start: int, stop: int, most: int | None) -> list[int]:
        owner = self.owners.here.get(tp.partition)
        return [] if owner is None else owner.needed(tp.topic, start, stop, most)
