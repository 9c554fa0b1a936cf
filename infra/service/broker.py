"""Opens the log that the settings name, and this node's membership among those that share it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from infra.db.database import Database
from infra.db.secret import log_name, note_log_name
from infra.db.seen_log import SqlLogMemory
from infra.extras import needed_for
from infra.service.node_name import DirectoryName
from infra.service.node_tls import trust
from infra.settings import Settings
from infra.urls import Embedded
from streams.embedded.lock import DirectoryLock
from streams.embedded.marks import Marks
from streams.node.backend import LogBackend, Membership
from streams.node.placement import StoredPlacement
from streams.ownership import Assignment
from topics import catalog

if TYPE_CHECKING:
    from streams.membership.neighbours import Neighbours


async def open_log(
    settings: Settings,
    directory: Path,
    url: str,
    secret: bytes,
    database: Database,
    marks: Marks,
    lock: DirectoryLock,
    process: str,
    placement: Assignment | None = None,
) -> tuple[LogBackend, Membership | None, Neighbours | None]:
    """Open the log, and this node's membership on Kafka, with its watch of other nodes, or in a placement.

    Args:
        directory: of this node's tables.
        url: where other nodes reach this one.
        secret: signs the metadata that nodes exchange.
        database: records which embedded log belongs to it.
        marks: of the data directory; updated from now on.
        lock: of the data directory; an embedded log releases it when it closes.
        process: the id by which this process answers at the URL.
        placement: the partitions of this lane and of the others; None for all.

    Raises:
        LogError: the log is damaged, unreadable or incomplete.
    """
    topics = catalog.topics(settings.edge.audio_retention_seconds * 1000, settings.chunk_bytes)
    broker = settings.log
    # Imported here, so that a node on the embedded log does not load the Kafka client.
    if isinstance(broker, Embedded):
        from streams.embedded.embedded_backend import EmbeddedBackend
        from streams.embedded.embedded_log import EmbeddedLog

        # A database on a server may have several such logs.
        name = None if database.file is None else await log_name(database)
        opened = EmbeddedLog.open(
            broker.directory, sync=broker.sync, queue_bytes=settings.queue_bytes, marks=marks, name=name, lock=lock
        )
        if database.file is not None:
            database.note_change = marks.note_change
            if name is None:
                await note_log_name(database, opened.store.name())
        membership = None if placement is None else StoredPlacement(placement)
        return EmbeddedBackend(opened, topics, settings.partition_count, time.time), membership, None

    with needed_for("a log on Kafka"):
        from streams.kafka.kafka_backend import KafkaBackend
        from streams.membership.membership import GroupMembership

    connection = settings.connection(broker.hosts)
    backend = KafkaBackend(
        connection,
        topics,
        settings.partition_count,
        settings.kafka_replication,
        catalog.record_limit(settings.chunk_bytes),
        settings.queue_bytes,
        SqlLogMemory(database),
    )
    group = GroupMembership(
        connection,
        DirectoryName(directory),
        settings.partition_count,
        url,
        settings.kafka_session_seconds,
        settings.standbys,
        secret,
        run=process,
    )
    group.neighbours.trust = trust(settings)
    return backend, group, group.neighbours
