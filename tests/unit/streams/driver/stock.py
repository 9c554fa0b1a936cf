"""Stock Faust over the embedded log: only the parts that are hardened are put back, to show what they are for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import faust
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.drivers import TRANSPORTS

from streams.driver import embedded
from streams.embedded.log import EmbeddedLog

TRANSPORTS.aliases["stock"] = "tests.unit.streams.driver.stock:Transport"


class Consumer(embedded.Consumer):
    """Reads the embedded log as stock Faust does: record by record, its own acknowledgements and commits."""

    _drain_messages = FaustConsumer._drain_messages
    ack = FaustConsumer.ack
    perform_seek = FaustConsumer.perform_seek
    pause_partitions = FaustConsumer.pause_partitions
    resume_partitions = FaustConsumer.resume_partitions
    on_buffer_full = FaustConsumer.on_buffer_full
    on_partitions_assigned = FaustConsumer.on_partitions_assigned
    on_partitions_revoked = FaustConsumer.on_partitions_revoked
    force_commit = FaustConsumer.force_commit


class Transport(embedded.Transport):
    """The embedded log with the stock consumer."""

    Consumer = Consumer


def application(
    directory: str, log: EmbeddedLog, topic: str, agent: Callable[[Any], Awaitable[None]], lanes: int
) -> Any:
    """Make a stock application with one agent."""
    app = faust.App(
        "stock", broker="stock://", store="memory://", datadir=directory, autodiscover=False, web_enabled=False,
        topic_disable_leader=True, reply_create_topic=False, key_serializer="raw", value_serializer="raw",
        stream_wait_empty=False, broker_commit_interval=0.05, topic_partitions=2,
    )  # fmt: skip
    app.embedded_log = log
    app.agent(app.topic(topic, key_type=bytes, value_type=bytes), name="agent", concurrency=lanes)(agent)
    return app
