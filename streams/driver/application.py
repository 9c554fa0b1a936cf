"""The Faust application: built in a function, hardened, with the agents and the table of the service."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import faust
import msgspec
from faust.transport.drivers import TRANSPORTS

from streams.driver.consumer import BatchSchema
from streams.driver.table import RowTable, Tables
from topics import catalog

# Faust logs under the module of the subclass; that its services start and stop is no event of ours.
for _module in ("application", "consumer", "embedded", "kafka", "producer", "table"):
    logging.getLogger(f"streams.driver.{_module}").setLevel(logging.WARNING)

TRANSPORTS.aliases["embedded"] = "streams.driver.embedded:Transport"
TRANSPORTS.aliases["kafka"] = "streams.driver.kafka:Transport"

COMMIT_SECONDS: Final = 0.5
#: Events of a stream are whole polls, so few of them are much audio.
STREAM_BUFFER: Final = 8
LINGER_SECONDS: Final = 0.002
#: The audio of a short recording and its acceptance fit into one request.
BATCH_BYTES: Final = 1024 * 1024
POLL_RECORDS: Final = 500
SESSION_TIMEOUT_SECONDS: Final = 15.0
#: Records in flight survive a broker that is away for this long; what clients wait for is bounded elsewhere.
SEND_TIMEOUT_SECONDS: Final = 600.0

#: Handles the records of one poll of one partition.
Handler = Callable[[int, Sequence[Any]], Awaitable[None]]


class ApplicationOptions(msgspec.Struct, frozen=True):
    """What the application needs to know of its deployment."""

    #: `embedded://` or `kafka://host:port;kafka://host:port`.
    broker: str
    directory: Path
    partitions: int
    record_limit: int
    queue_bytes: int
    #: Name of this node in the consumer group, the same after a restart: it takes its partitions back at once, where
    #: a new member would wait until the broker has given up on the old one.
    instance: str
    #: Where other nodes reach this one.
    url: str


class Application(faust.App):  # type: ignore[misc]
    """A Faust app that tells its owner when it dies, and that commits nothing it has not flushed."""

    def __init__(
        self, options: ApplicationOptions, on_failure: Callable[[BaseException], None], embedded_log: Any = None
    ) -> None:
        self.embedded_log = embedded_log
        self.queue_bytes = options.queue_bytes
        self._on_failure = on_failure
        self._lost: Callable[[], None] = lambda: None
        self._regained: Callable[[], None] = lambda: None
        super().__init__(
            catalog.APP,
            broker=options.broker,
            store="rocksdb://",
            datadir=str(options.directory),
            autodiscover=False,
            web_enabled=False,
            canonical_url=options.url,
            cython_optimizations=True,
            topic_partitions=options.partitions,
            topic_disable_leader=True,
            TableManager=Tables,
            topic_allow_declare=False,
            reply_create_topic=False,
            key_serializer="raw",
            value_serializer="raw",
            broker_commit_interval=COMMIT_SECONDS,
            broker_max_poll_records=POLL_RECORDS,
            consumer_group_instance_id=options.instance,
            broker_session_timeout=SESSION_TIMEOUT_SECONDS,
            broker_heartbeat_interval=SESSION_TIMEOUT_SECONDS / 5,
            stream_buffer_maxsize=STREAM_BUFFER,
            stream_wait_empty=False,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=options.record_limit,
            producer_max_request_size=options.record_limit,
            producer_max_batch_size=BATCH_BYTES,
            producer_linger=LINGER_SECONDS,
            producer_request_timeout=SEND_TIMEOUT_SECONDS,
        )
        self.row_table = RowTable(self, name=catalog.TABLE, partitions=options.partitions)
        self.tables.add(self.row_table)

    def persist_offsets(self) -> None:
        """Note how far the tables are in the changelog; called after a flush, before a commit."""
        self.row_table.persist_offsets()

    def on_rebalance(self, lost: Callable[[], None], regained: Callable[[], None]) -> None:
        """Register what happens when partitions are being taken away, and when they are recovered.

        A loss has no end when another one follows before the tables are recovered.
        """
        self._lost, self._regained = lost, regained

    async def start(self) -> None:
        """Start in the running loop, which is the one that agents and requests run in."""
        self._home, self._home_thread = asyncio.get_running_loop(), threading.get_ident()
        await super().start()

    def on_rebalance_start(self) -> None:
        """Called by the driver before anything else of a rebalance; the Kafka driver calls it in its own thread."""
        super().on_rebalance_start()
        if threading.get_ident() == self._home_thread:
            self._lost()
        else:
            # Comes before the revocation, which the driver hands to the same loop after this.
            self._home.call_soon_threadsafe(self._lost)

    def on_rebalance_end(self) -> None:
        """Called when the tables are recovered and the flow has resumed; ignored when the next rebalance has begun."""
        if self.tables.recovered_for(self.rebalancing_count):
            super().on_rebalance_end()
            self._regained()

    def _crash(self, reason: BaseException) -> None:
        # Called for every crashed service of the tree; the health check must be red before anything stops.
        self._on_failure(reason)
        super()._crash(reason)

    def consume(self, topic: str, name: str, handle: Handler) -> None:
        """Register an agent that hands whole polls of a topic to `handle`."""
        channel = self.topic(topic, schema=BatchSchema())

        async def agent(stream: Any) -> None:
            async for event in stream.events():
                await self._guarded(handle, event)

        self.agent(channel, name=name)(agent)

    async def _guarded(self, handle: Handler, event: Any) -> None:
        """Finish a batch, or stop the process: an exception must never count as an acknowledgement."""
        if event.message.generation_id != self.consumer_generation_id:
            return  # Delivered before a rebalance, and again after it.
        try:
            await handle(event.message.partition, event.value)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if event.message.generation_id != self.consumer_generation_id:
                return  # The partition went away meanwhile; who owns it now gets the records again.
            await self.crash(error)
            raise
        self.consumer.finish(event.message)
