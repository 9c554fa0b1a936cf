"""The embedded log behind Faust's transport classes: one process owns all partitions, nothing leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from faust.transport import base
from faust.transport.consumer import Consumer as FaustConsumer
from faust.types import TP

from streams.driver.consumer import BatchConsumer
from streams.driver.guarantee import refuse_exactly_once
from streams.driver.producer import RecordProducer
from streams.embedded.log import EmbeddedLog

POLL_RECORDS: Final = 512
POLL_BYTES: Final = 4 * 1024 * 1024
MEMBER: Final = "embedded"


class Consumer(BatchConsumer):
    """Reads the embedded log; the whole group is this one member."""

    pace = 0.0
    consumer_stopped_errors: ClassVar[tuple[type[BaseException], ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log: EmbeddedLog = self.app.embedded_log
        self._group: str = self.app.conf.id
        self._assigned: set[TP] = set()
        self._positions: dict[TP, int] = {}
        self._more = asyncio.Event()
        self._rebalance_task: asyncio.Task[None] | None = None
        self._log.on_append(self._more.set)

    # --- group ------------------------------------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe; a task makes the assignment, which waits until this call has returned."""
        self._rebalance_task = asyncio.create_task(self._rebalance(set(topics)), name="embedded-rebalance")

    async def _rebalance(self, topics: set[str]) -> None:
        app = self.app
        try:
            app.on_rebalance_start()
            await self.on_partitions_revoked(self._assigned)
            app.consumer_generation_id += 1
            self._assigned = self._assign(topics)
            await self.on_partitions_assigned(self._assigned, app.consumer_generation_id)
        except Exception as error:
            await app.crash(error)

    def _assign(self, topics: set[str]) -> set[TP]:
        """Let Faust's own assignor decide, so that tables and the key store know who owns what."""
        counts = self._log.topics()
        cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts.get(topic, 0))))
        assignor = self.app.assignor
        assignment = assignor.assign(cluster, {MEMBER: assignor.metadata(topics)})[MEMBER]
        assignor.on_assignment(assignment)
        return {TP(topic, partition) for topic, partitions in assignment.assignment for partition in partitions}

    def assignment(self) -> set[TP]:
        """Return the partitions that are owned."""
        return self._assigned

    async def create_topic(self, topic: str, partitions: int, replication: int, **kwargs: Any) -> None:
        """Do nothing: all topics are declared from the catalogue before Faust starts."""

    def topic_partitions(self, topic: str) -> int | None:
        """Return the partition count of a topic."""
        return self._log.topics().get(topic)

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:
        """Return the partition that the record names; all of ours do."""
        return partition

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    # --- positions --------------------------------------------------------------------------------------------------

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Go back to the committed offsets, or to the beginning where there are none."""
        offsets = {tp: self._committed(tp) for tp in self._assigned}
        self._positions.update(offsets)
        return offsets

    def _committed(self, tp: TP) -> int:
        earliest = self._log.earliest(tp)
        committed = self._log.committed(self._group, tp)
        return earliest if committed is None else max(committed, earliest)

    async def position(self, tp: TP) -> int | None:
        """Return the next offset to read."""
        return self._positions.get(tp)

    async def seek_to_beginning(self, *partitions: TP) -> None:
        """Go to the first offsets that exist."""
        self._positions.update({tp: self._log.earliest(tp) for tp in partitions})

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Go to these offsets."""
        for tp, offset in partitions.items():
            await self._seek(tp, offset)
            self._read_offset[tp] = offset

    async def _seek(self, partition: TP, offset: int) -> None:
        self._positions[partition] = offset

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the first offsets that exist."""
        return {tp: self._log.earliest(tp) for tp in partitions}

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the offsets after the last durable records."""
        return {tp: self._log.end(tp) for tp in partitions}

    def highwater(self, tp: TP) -> int:
        """Return the offset after the last durable record."""
        return self._log.end(tp)

    # --- records ----------------------------------------------------------------------------------------------------

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, list[Any]]:
        tps = self._assigned if active_partitions is None else active_partitions
        records = self._read(tps)
        if not records:
            self._more.clear()
            records = self._read(tps)
        if not records:
            try:
                async with asyncio.timeout(timeout):
                    await self._more.wait()
            except TimeoutError:
                return {}
            records = self._read(tps) if self.flow_active else {}
        return records

    def _read(self, tps: Iterable[TP]) -> dict[TP, list[Any]]:
        batches = {}
        for tp in tps:
            position = self._positions.get(tp)
            if position is not None and self._log.end(tp) > position:
                records = self._log.read(tp, position, POLL_RECORDS, POLL_BYTES)
                if records:
                    batches[tp] = records
                    self._positions[tp] = records[-1].offset + 1
                else:
                    self._positions[tp] = self._log.end(tp)
        return batches

    def _to_message(self, tp: TP, record: Any) -> Any:
        return self._message(tp, record, record.key, record.value)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        await self._log.commit(self._group, offsets)
        return True

    def close(self) -> None:
        """Do nothing: only the log is held, and its owner closes it."""


class Producer(RecordProducer):
    """Writes the embedded log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writer = self.app.embedded_log

    def supports_headers(self) -> bool:
        """Return False: records of ours have none."""
        return False


class Transport(base.Transport):  # type: ignore[misc]
    """The embedded log as a Faust transport, `embedded://`."""

    Consumer: ClassVar[type[FaustConsumer]] = Consumer
    Producer = Producer
    default_port = 0
    driver_version = "embedded=1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        refuse_exactly_once(self.app)
