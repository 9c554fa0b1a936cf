"""The agents that fold, registered with Faust: each gets the records of a topic, and parks what cannot be folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from streams.driver.application import Application
from streams.folding.agent import Agent
from streams.folding.batch import fold_batch
from streams.folding.record import LogRecord
from streams.folding.store import H, HeadStore
from streams.node.partitions import OwnedPartitions
from streams.node.sender import RecordSender
from topics import record_codec
from topics.catalog import PARKED
from topics.records import Parked

log = structlog.get_logger(__name__)


class FoldingAgents:
    """The agents of a node, each with its topic and the stores that it writes."""

    def __init__(self, application: Application, partitions: OwnedPartitions, sender: RecordSender) -> None:
        #: Records moved to dead-letter topics.
        self.parked = 0
        self._application = application
        self._partitions = partitions
        self._sender = sender

    def add(self, topic: str, name: str, agent: Agent[H], store_of: Callable[[int], HeadStore[H]]) -> None:
        """Register an agent before the application starts; `store_of` returns the store of an owned partition."""

        async def park(partition: int, record: LogRecord, cause: str) -> None:
            await self._park(topic, partition, record, cause)

        async def handle(partition: int, records: Sequence[LogRecord]) -> None:
            await fold_batch(lambda: store_of(partition), records, agent, park)
            self._partitions.note_folded(topic, partition, records[-1].offset + 1)

        self._application.consume(topic, name, handle)

    async def _park(self, topic: str, partition: int, record: LogRecord, cause: str) -> None:
        self.parked += 1
        log.warning("record.parked", topic=topic, partition=partition, offset=record.offset, cause=cause)
        parked = Parked(topic, partition, record.offset, cause, record.key or b"", record.value or b"")
        await self._sender.writer.append(
            PARKED[topic], partition, record.key, record_codec.encode(parked), bounded=False
        )
