"""Replaces Kafka's libraries, clocks and threads in the simulation; all else is the real code."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import structlog
from aiokafka.consumer import group_coordinator, subscription_state

from streams.folding import billing as biller
from streams.kafka import consumers, delivery_reports
from streams.kafka import kafka_backend as backend
from streams.kafka import kafka_writer as writer
from streams.membership import assignor, membership, neighbours
from streams.node import owner, partitions
from streams.sessions import source_watch
from streams.tables import partition_rows as rows
from tests.simulation import group, librdkafka, lines, threads
from tests.simulation.loop import CURRENT
from tests.simulation.node import READ_SECONDS
from tests.simulation.world import current
from topics.formats import fingerprint
from topics.sessions import commands

#: Modules that read the time or start threads.
MODULES: tuple[ModuleType, ...] = (
    assignor,
    backend,
    biller,
    consumers,
    delivery_reports,
    group_coordinator,
    membership,
    owner,
    partitions,
    rows,
    subscription_state,
    writer,
)


def _node() -> Any:
    process: Any = CURRENT.get()
    return process.node


def _producer(settings: Any, logger: Any = None) -> librdkafka.Producer:
    node = _node()
    return librdkafka.Producer(node.link, node.process.context, current().threads)


def _client(request_timeout_ms: int, **settings: Any) -> group.Client:
    node = _node()
    node.client = group.Client(
        node.link, current().group, node.process.context, node.partitions_count, request_timeout_ms / 1000
    )
    return node.client  # type: ignore[no-any-return]


async def _ensure(*arguments: Any) -> None: ...


#: A process computes it once, and here all nodes are in one.
_fingerprint = cache(fingerprint)


TIME = SimpleNamespace(
    time=lambda: current().wall_ms() / 1000,
    monotonic=lambda: current().loop.now,
    sleep=lambda seconds: current().threads.sleep(seconds),
)
THREADING = SimpleNamespace(
    Lock=lambda: threads.Lock(current().threads),
    Condition=lambda: threads.Condition(current().threads),
    Thread=lambda **arguments: threads.StartedThread(current().threads, **arguments),
)


@contextmanager
def simulated() -> Iterator[None]:
    """Connect the real code to the world that is `current`."""
    before = structlog.get_config()
    with ExitStack() as stack:

        def patch(module: ModuleType, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(module, name, value))

        for module in MODULES:
            for name, value in (("time", TIME), ("threading", THREADING)):
                if hasattr(module, name):
                    patch(module, name, value)
        patch(writer, "Producer", _producer)
        patch(consumers, "Consumer", lambda settings: librdkafka.Consumer(_node().reading))
        patch(consumers, "POLL_SECONDS", 1.0)
        patch(consumers, "SILENT_SECONDS", 2.5)
        patch(backend, "ensure", _ensure)
        patch(membership, "BrokerClient", _client)
        patch(neighbours, "Line", lines.Line)
        patch(assignor, "fingerprint", _fingerprint)
        patch(assignor, "socket", SimpleNamespace(gethostname=lambda: _node().machine))
        patch(partitions, "POLL_SECONDS", 2.0)
        patch(membership, "READ_SECONDS", READ_SECONDS)
        # Sources are lost after a fraction of a second.
        patch(source_watch, "LOST_MS", 100)
        # Chunks of short streams also have rows.
        patch(commands, "MOST_RECENT", 1)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        stack.callback(partial(structlog.configure, **before))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield
