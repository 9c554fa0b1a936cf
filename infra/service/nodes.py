"""The operator's view of this node: its streams, its engines and its disks."""

import asyncio
import importlib.metadata
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from infra.db.database import Database
from infra.settings import Settings
from infra.urls import Embedded
from streams.clients.client import EngineClient
from streams.models.loaded_models import LoadedModels
from streams.node.dead_letters import DeadLetters
from streams.node.inspection import UNKNOWN, Inspection, LogFacts
from streams.node.node import Node
from streams.tables.tables import Tables
from topics.ports.health import Reading
from topics.ports.nodes import AsideFacts, DeadLetter, DiskFacts, EngineFacts, NodeFacts
from topics.times import utc_time

#: The shortest time between two pings of an engine that answered.
ASK_SECONDS: Final = 10.0
VERSION: Final = importlib.metadata.version("earshot-server")
#: The most rebuilt tables that are listed.
NEWEST_REBUILT: Final = 20


class ServiceNodes:
    """Implements the port `topics.ports.nodes.Nodes`."""

    def __init__(
        self,
        node: Node,
        models: LoadedModels,
        engines: Sequence[EngineClient],
        url: str,
        queue_bytes: int,
        disks: Mapping[str, Path],
        kept_free: int,
        database: Database,
        outdated_speakers: Callable[[], Awaitable[str | None]],
        stop: Callable[[], None],
        lane: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Report on a node that others reach at `url`; `stop` begins to stop it.

        `disks` maps contents to directories.
        """
        self.drain = stop
        self._lane = lane
        self._node = node
        self._models = models
        self._engines = engines
        self.url = url
        self._disks = disks
        self._kept_free = kept_free
        self._database = database
        self._outdated_speakers = outdated_speakers
        self._began = time.monotonic()
        self._inspection = Inspection(node, queue_bytes)
        self._dead_letters = DeadLetters(node)
        #: When each engine was pinged, and whether it answered.
        self._reached: dict[EngineClient, tuple[float, bool]] = {}

    def elsewhere(self) -> Sequence[str]:
        return sorted({*self._node.owners.elsewhere.values(), *self._node.owners.others} - {self.url})

    def owner(self, partition: int) -> str | None:
        owners = self._node.owners
        return None if partition in owners.here else owners.elsewhere.get(partition)

    async def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter:
        return await self._dead_letters.read(topic, partition, offset)

    async def put_back(self, topic: str, partition: int, offset: int) -> int:
        return await self._dead_letters.put_back(topic, partition, offset)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of engines and disks, and of the build."""
        for engine in self._engines:
            record, labels = engine.record, {"engine": engine.name}
            yield Reading("earshot_engine_calls_total", "Calls of an engine.", record.calls, labels)
            yield Reading("earshot_engine_failures_total", "Those that failed.", record.failures, labels)
            yield Reading("earshot_engine_seconds_total", "Seconds that they took.", record.seconds, labels)
            yield Reading("earshot_engine_failing", "1 if its last call failed.", record.failing, labels)
        for disk in disk_facts(self._disks, self._kept_free):
            yield Reading("earshot_disk_free_bytes", "Free bytes of a disk.", disk.free_bytes, {"holds": disk.holds})
        version = {"version": VERSION, "python": platform.python_version()}
        yield Reading("earshot_build_info", "1, with the version that runs.", 1, version)

    async def facts(self) -> NodeFacts:
        node = self._node
        told, engines, outdated, aside = await asyncio.gather(
            self._inspection.log_facts(),
            asyncio.gather(*map(self._engine, self._engines)),
            self._outdated_speakers(),
            asyncio.to_thread(_aside, node.partitions.tables),
        )
        known = told if isinstance(told, LogFacts) else UNKNOWN
        rebuilt = node.partitions.tables.rebuilt
        sessions, jobs = (sum(len(store.projects) for store in workload.all_serving()) for workload in node.workloads)
        return NodeFacts(
            url=self.url,
            version=VERSION,
            up_seconds=int(time.monotonic() - self._began),
            lane=self._lane,
            not_ready=node.ready(),
            partitions=self._inspection.partitions(known),
            partition_count=node.owners.partitions,
            queues=self._inspection.queues(),
            engines=engines,
            workers=self._inspection.workers(),
            models=self._models.loaded,
            disks=disk_facts(self._disks, self._kept_free),
            parked=None if isinstance(told, str) else known.parked,
            log_error=told if isinstance(told, str) else None,
            sessions=sessions,
            jobs=jobs,
            lag_seconds=round(node.session_workload.analyser.ready.lag(), 1),
            job_lag_seconds=round(node.job_workload.runner.lag(), 1),
            rebuilt=[one.sentence() for one in rebuilt if not one.is_lost][-NEWEST_REBUILT:],
            lost=[one.sentence() for one in rebuilt if one.is_lost][-NEWEST_REBUILT:],
            aside=aside,
            outdated_speakers=outdated,
            database_error=database_error(self._database),
            standbys=self._inspection.standbys(known),
            clock_ahead_seconds=self._inspection.clock_ahead_seconds(),
        )

    async def close(self) -> None:
        await self._inspection.stop()

    async def _engine(self, engine: EngineClient) -> EngineFacts:
        asked, there = self._reached.get(engine, (0.0, False))
        if not there or time.monotonic() - asked > ASK_SECONDS:
            there = await engine.reachable()
            self._reached[engine] = time.monotonic(), there
        record, address = engine.record, engine.address
        return EngineFacts(
            engine.name,
            address.origin,
            address.model,
            there,
            record.calls,
            record.failures,
            record.in_flight,
            address.limit,
            record.latency_ms,
            record.error,
            None if record.failed_at_ms is None else utc_time(record.failed_at_ms),
            record.failing,
        )


def disks_of(settings: Settings) -> dict[str, Path]:
    """Return the directories whose disks a node needs, by what they hold."""
    log = {"log": settings.log.directory} if isinstance(settings.log, Embedded) else {}
    return {"data": settings.own, **log}


def disk_facts(disks: Mapping[str, Path], kept_free: int) -> list[DiskFacts]:
    """Return the disks of directories, which are given by what they hold."""
    by_device: dict[int, list[str]] = {}
    for holds, path in disks.items():
        by_device.setdefault(path.stat().st_dev, []).append(holds)
    usages = [(names, shutil.disk_usage(disks[names[0]])) for names in by_device.values()]
    return [DiskFacts(", ".join(names), usage.total, usage.free, kept_free) for names, usage in usages]


def database_error(database: Database) -> str | None:
    """Return why the last use of a database failed, with its location, or None."""
    return None if database.failure is None else f"{database.failure}: {database.place}"


def _aside(tables: Tables) -> AsideFacts | None:
    """Return the records and tables that were set aside. Blocking: call it in a thread."""
    paths = tables.aside()
    files = [file for path in paths for file in path.glob("*")]
    size = 0
    for file in files:
        with suppress(FileNotFoundError):  # An operator may have removed it.
            size += file.stat().st_size
    return AsideFacts(str(paths[0].parent), len(paths), size) if paths else None
