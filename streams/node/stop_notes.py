"""Notes of partitions that stopped: in the table, so that the next owner stops too, and where operators decide."""

import asyncio
from typing import Final

import structlog

from streams.node.backend import LogBackend
from streams.node.owner import PartitionOwner
from streams.node.partition_consumer import PartitionStopped
from topics.errors import ServiceError
from topics.ports.stops import Decision, Stop, Stops

log = structlog.get_logger(__name__)

#: Seconds between looks for an operator's decision.
POLL_SECONDS: Final = 5.0


class StopNotes:
    """Notes stops and waits for decisions; retries while the table or the database fails. Loop only."""

    def __init__(self, backend: LogBackend, stops: Stops | None) -> None:
        self._backend = backend
        self._stops = stops
        #: By partition, the last stop on which somebody decided.
        self._decided: dict[int, tuple[str, int]] = {}

    async def decision(self, owner: PartitionOwner, error: PartitionStopped) -> Decision:
        """Note why a partition stopped, and return what an operator decides, whenever that is."""
        topic = self._backend.topic_name(error.topic)
        stop = Stop(owner.number, topic, error.offset, str(error), self._backend.now_ms())
        if self._decided.pop(owner.number, None) == (topic, error.offset):
            await asyncio.sleep(POLL_SECONDS)  # The decision did not help, and still stands if it was to skip.
        while True:
            try:
                if owner.restored:
                    owner.aside.note_stop(error.topic, error.offset)
                if self._stops is not None and (decision := await self._stops.note(stop)) is not None:
                    log.info("partition.resumed", partition=owner.number, decision=decision)
                    self._decided[owner.number] = topic, error.offset
                    return decision
            except ServiceError as fault:
                log.warning("partition.stop_not_noted", partition=owner.number, error=str(fault))
            await asyncio.sleep(POLL_SECONDS)

    async def note_end(self, owner: PartitionOwner) -> None:
        """Note that a partition which had stopped serves again."""
        while True:
            try:
                if self._stops is not None:
                    await self._stops.clear(owner.number)
                owner.aside.clear_stop()
                return
            except ServiceError as fault:
                log.warning("partition.stop_not_noted", partition=owner.number, error=str(fault))
                await asyncio.sleep(POLL_SECONDS)
