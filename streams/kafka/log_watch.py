"""Watches whether the log on Kafka is the one of before: the same topics, and no records lost."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
from msgspec.structs import replace

from streams.folding import retry
from streams.kafka.connection import KafkaConnection
from streams.kafka.topic_state import TopicState, TopicStates
from streams.kafka.topics import PAGE, unfit
from streams.log import LogUser
from topics.catalog import CHANGELOG, FOLDED, Topic, TopicPartition
from topics.errors import ServiceError
from topics.ports.seen_log import LogMemory, SeenLog, SeenTopic

log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 10.0
#: Comparisons with the brokers between two of the topics' settings.
SETTINGS_EVERY: Final = 6
#: Topics whose loss is a loss of sessions and jobs.
WATCHED: Final = (*sorted(FOLDED), CHANGELOG)

Bounds = Mapping[TopicPartition, tuple[int, int]]


class LogWatch:
    """Compares the log with what nodes have seen of it, which `memory` keeps for all of them. Loop only.

    A partition whose topics lost records stops, and so do all partitions if a topic was made again. Only the operator
    can accept that (`earshot accept-log`).
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[Topic],
        partitions: int,
        replication: int | None,
        bounds: Callable[[Sequence[TopicPartition]], Awaitable[Bounds]],
        memory: LogMemory,
    ) -> None:
        """Watch `topics`, named as on the brokers, of which `partitions` are used; `bounds` asks for offsets."""
        #: Settings and copies of topics that do not keep what was promised.
        self.unfit: list[str] = []
        self._connection = connection
        self._topics = topics
        self._partitions = partitions
        self._replication = replication
        self._bounds = bounds
        self._memory = memory
        #: Why all partitions have stopped.
        self.changed: str | None = None
        #: Why single partitions have.
        self._lost: dict[int, str] = {}
        self._ids: dict[str, str] = {}
        self._known: dict[TopicPartition, tuple[int, int]] = {}
        self._asked = TopicStates(connection)
        self._user: LogUser | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._fault: str | None = None

    async def start(self, user: LogUser, states: Mapping[str, TopicState]) -> None:
        """Remember the topics, which are those of before or accepted, and watch them."""
        self._user = user
        self._ids = {name: states[self._connection.topic(name)].id for name in WATCHED}
        self._adopt(await self._memory.seen())
        # New topics have no leaders yet.
        await retry.until_available(lambda: self.bounds(self._all()))
        self._adopt(await self._memory.update(lambda before: self._merged(before, states)))
        self._task = asyncio.create_task(self._run(), name="log-watch")
        self._task.add_done_callback(self._end)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def fault(self, number: int) -> str | None:
        """Return why what the log has of a partition is not whole, None if it is, as far as is known."""
        return self.changed or self._lost.get(number)

    async def bounds(self, tps: Sequence[TopicPartition]) -> Bounds:
        """Ask the brokers for the first and the next offset of partitions; stop those that lost records."""
        # Another call, or another node, may learn of newer records before this answer arrives.
        known = {tp: self._known[tp] for tp in tps if tp in self._known}
        bounds = await self._bounds(tps)
        self._compare(bounds, known)
        return bounds

    def _compare(self, bounds: Bounds, known: Bounds) -> None:
        for tp, (begin, end) in bounds.items():
            first, last = known.get(tp, (begin, end))
            if end < last:
                self.note_loss(tp, last, end)
            elif tp.topic == CHANGELOG and begin > first:
                name = f"{self._connection.topic(tp.topic)}/{tp.partition}"
                self._lose(
                    tp.partition,
                    f"{name} begins at offset {begin}, and began at {first}: rows were removed: see {PAGE}",
                )
            elif tp.topic in WATCHED:
                first, last = self._known.get(tp, (begin, end))
                self._known[tp] = (min(begin, first), max(end, last))

    def note_loss(self, tp: TopicPartition, before: int, now: int) -> None:
        """Stop a partition one of whose topics ended at offset `before`, and ends at `now`, or did meanwhile."""
        name = f"{self._connection.topic(tp.topic)}/{tp.partition}"
        self._lose(
            tp.partition,
            f"{name} ends at offset {now}, and there were records up to {before}: they were lost: see {PAGE}",
        )

    def _lose(self, number: int, reason: str) -> None:
        if number in self._lost:
            return
        self._lost[number] = reason
        log.error("log.lost", partition=number, reason=reason)
        self._stop([number], reason)
        self._wake.set()  # Other nodes must know before they take the partition over.

    def _stop(self, numbers: Iterable[int], reason: str) -> None:
        for number in numbers:
            if self._user is not None:
                self._user.stop_partition(number, reason)

    def _all(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in WATCHED for number in range(self._partitions)]

    # --- what was seen ----------------------------------------------------------------------------------------------

    def _adopt(self, seen: SeenLog | None) -> None:
        """Take over what other nodes and earlier starts have seen."""
        if seen is None:
            return
        for name in WATCHED:
            topic = seen.topics.get(self._connection.topic(name))
            if topic is None or topic.id != self._ids[name]:
                continue
            for number, seen_bounds in enumerate(zip(topic.begins, topic.ends, strict=True)):
                tp = TopicPartition(name, number)
                begin, end = self._known.get(tp, seen_bounds)
                self._known[tp] = (min(begin, seen_bounds[0]), max(end, seen_bounds[1]))
        for number, reason in seen.lost.items():
            self._lose(number, reason)

    def _merged(self, before: SeenLog | None, states: Mapping[str, TopicState] = {}) -> SeenLog:
        """Return `before` with what this node has seen; topics are added from `states` alone, at a start."""
        topics = dict(before.topics) if before is not None else {}
        for name in WATCHED:
            on_brokers = self._connection.topic(name)
            seen = topics.get(on_brokers)
            if seen is None and on_brokers in states:
                seen = SeenTopic(self._ids[name], states[on_brokers].partitions, (), ())
            if seen is None or seen.id != self._ids[name]:
                continue  # Another node, or the operator, knows better.
            known = [self._known.get(TopicPartition(name, n), (0, 0)) for n in range(self._partitions)]
            begins, ends = (tuple(one) for one in zip(*known, strict=True))
            if seen.ends:
                begins, ends = tuple(map(min, begins, seen.begins)), tuple(map(max, ends, seen.ends))
            topics[on_brokers] = replace(seen, begins=begins, ends=ends)
        lost = {} if before is None else before.lost
        return SeenLog(self._partitions, topics, {**lost, **self._lost} if topics else lost)

    # --- watching ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        round = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._poll(round % SETTINGS_EVERY == 0)
            except ServiceError as error:
                if self._fault is None:
                    log.warning("log.not_checked", error=str(error))
                self._fault = str(error)
            else:
                self._fault = None
                round += 1

    async def _poll(self, with_settings: bool) -> None:
        states = await asyncio.to_thread(self._asked.describe, [topic.name for topic in self._topics])
        seen = await self._memory.seen()
        if self.changed is None and (changes := self._changes(states)):
            self.changed = "; ".join(changes)
            log.error("log.changed", reason=self.changed)
            self._stop(range(self._partitions), self.changed)
        if self.changed is not None:
            return
        await self.bounds(self._all())
        self._adopt(seen)
        if seen is not None and self._merged(seen) != seen:
            self._adopt(await self._memory.update(self._merged))
        if with_settings:
            await self._check_settings(states, seen)

    def _changes(self, states: Mapping[str, TopicState]) -> list[str]:
        """Return which topics are gone or not those of this start; added partitions are no reason to stop."""
        names = {self._connection.topic(name): id for name, id in self._ids.items()}
        lines = []
        for name, id in names.items():
            state = states.get(name)
            if state is None:
                lines.append(f"topic {name} was deleted: see {PAGE}")
            elif state.id != id:
                lines.append(f"topic {name} was deleted and made again: see {PAGE}")
        return lines

    async def _check_settings(self, found: Mapping[str, TopicState], seen: SeenLog | None) -> None:
        expected = (self._connection, self._topics, found, self._partitions, self._replication, seen)
        faults = await asyncio.to_thread(unfit, self._asked, *expected)
        if faults and faults != self.unfit:
            log.error("topics.unfit", faults=faults)
        elif self.unfit and not faults:
            log.warning("topics.fit_again")
        self.unfit = faults

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self._user is not None:
            self._user.fail(error)
