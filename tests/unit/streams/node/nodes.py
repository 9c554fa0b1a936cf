"""Nodes on the embedded log in a temporary directory, with a clock set by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from streams.audio.decode import open_file
from streams.embedded.embedded_backend import EmbeddedBackend
from streams.embedded.embedded_log import EmbeddedLog
from streams.folding import presence
from streams.models.loaded_models import LoadedModels
from streams.node import partitions as module
from streams.node import sender
from streams.node.node import Node
from streams.node.options import NodeOptions
from streams.services.service import JobService
from streams.workers.workers import Workers
from tests.unit.streams.audio.engines import Fingerprint
from tests.unit.streams.clocks import HandClock
from tests.unit.streams.workers import double
from topics import catalog
from topics.catalog import TopicPartition
from topics.folding import Verdict
from topics.jobs.options import Service
from topics.keys import new_id, partition_of
from topics.ports.ledger import Ledger
from topics.ports.sessions import SessionView
from topics.ports.stops import Stops
from topics.sessions.records import SessionCommand

DAY_MS = 24 * 3600 * 1000
PARTITIONS = 4


class Home:
    """A data directory, and the nodes started on it in sequence."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = HandClock(1_700_000_000.0)
        self.engine = Fingerprint()
        self.services: dict[Service, JobService] = {}
        self.ledger: Ledger | None = None
        self.failures = 0

    def log(self) -> EmbeddedLog:
        """Open the log without a node."""
        log = EmbeddedLog.open(self.directory / "log", sync=False, clock=self.clock, steady=self.clock)
        for topic in catalog.topics(DAY_MS):
            log.declare(topic.name, PARTITIONS, compact=topic.compact, retention_ms=topic.retention_ms)
        return log

    async def append(self, at: TopicPartition, key: bytes, *values: bytes | None) -> None:
        """Write to the log while no node runs."""
        log = self.log()
        for value in values:
            await log.append(*at, key, value)
        await log.close()

    @property
    def tables(self) -> Path:
        return self.directory / "partitions"

    def node(self, stops: Stops | None = None, **options: Any) -> Node:
        backend = EmbeddedBackend(self.log(), catalog.topics(DAY_MS), PARTITIONS, self.clock)
        settings = NodeOptions(self.directory, PARTITIONS, **options)
        models = LoadedModels(self.engine)
        workers = Workers(2, double.of_models(models).fork)
        parts = models, backend, self._failed, open_file, workers, self.services, self.ledger
        return Node(settings, *parts, stops=stops)

    @asynccontextmanager
    async def starting(self, **options: Any) -> AsyncIterator[Node]:
        """Run a node during the body."""
        node = self.node(**options)
        # Often, so that tests need not wait; late, because a busy machine is no slow log; and when the clock is turned,
        # the node was there.
        with (
            mock.patch.object(module, "NOTE_SECONDS", 0.05),
            mock.patch.object(sender, "VERDICT_SECONDS", 60.0),
            mock.patch.object(presence, "GAP_MS", 400 * DAY_MS),
        ):
            try:
                await node.start()
                yield node
            finally:
                await node.stop()

    @asynccontextmanager
    async def serving(self, **options: Any) -> AsyncIterator[Node]:
        async with self.starting(**options) as node:
            await asyncio.wait_for(node.served.wait(), 60)
            yield node

    def _failed(self) -> None:
        self.failures += 1


def tp(topic: str, session: str) -> TopicPartition:
    return TopicPartition(topic, partition_of(session, PARTITIONS))


def log_of(node: Node) -> EmbeddedLog:
    log = node.backend.writer
    assert isinstance(log, EmbeddedLog)
    return log


def noted(node: Node, topic: str, partition: int) -> int | None:
    return node.owners.here[partition].durable.get(topic)


async def send(node: Node, session: str, *commands: SessionCommand) -> list[Verdict]:
    return [await node.sessions.submit(session, command) for command in commands]


def view(node: Node, session: str) -> SessionView:
    session_view = node.sessions.view(session)
    assert session_view is not None
    return session_view


def is_finished(node: Node, session: str) -> bool:
    return view(node, session).head.finished


def scores(node: Node, session: str, first: int = 0, count: int = 10_000) -> bytes:
    return b"".join(windows.scores for windows in node.sessions.windows(session, first, count))


def in_partition(number: int) -> str:
    return new_id(number, PARTITIONS)
