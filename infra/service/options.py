"""Converts the settings to options of the node, the edge and its connections."""

import importlib.metadata
from pathlib import Path

import msgspec
import structlog

from app.options import EdgeOptions
from infra.errors import variable
from infra.service import limits, listener
from infra.service.data_directory import LEFT_OUT, tables
from infra.service.node_tls import trust
from infra.settings import Settings
from infra.transport.connections import ConnectionLimits
from infra.urls import Embedded
from streams.deliveries.options import DeliveryOptions, parse_networks, parse_retries
from streams.node.options import AUDIO_CACHE_BYTES, PICTURE_BYTES, NodeOptions
from topics import apikeys

log = structlog.get_logger("earshot")


def node_options(settings: Settings, url: str, database: Path | None) -> NodeOptions:
    """Return the options of a node that others reach at `url`; `database` is the file of a SQLite database."""
    directory = tables(settings)
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory]
    if isinstance(settings.log, Embedded):
        files += [settings.log.directory / "log"]
    if database is not None:
        files += [database]
    return NodeOptions(
        directory=directory,
        tables_left_out=(settings.own / LEFT_OUT).exists(),
        files=tuple(files),
        partitions=settings.partition_count,
        idle_seconds=settings.edge.session_idle_seconds,
        url=url,
        sweep_seconds=1.0,
        part_bytes=settings.queue_bytes // 4,
        share_bytes=settings.queue_bytes // 2,
        free_bytes=settings.edge.upload_free_bytes,
        audio_cache_bytes=settings.lane.share(AUDIO_CACHE_BYTES),
        picture_bytes=settings.lane.share(PICTURE_BYTES, PICTURE_BYTES // 2),
        project_sessions=settings.project_sessions,
        project_jobs=settings.project_jobs,
        job_keep_ms=settings.edge.job_retention_seconds * 1000,
        deliveries=DeliveryOptions(
            networks=parse_networks(settings.delivery_networks) if settings.delivery_networks else (),
            retries=parse_retries(settings.delivery_retries),
            node=f"{url}/{settings.lane.number}",
            version=importlib.metadata.version("earshot-server"),
        ),
    )


def edge_options(settings: Settings, secret: bytes, speech_models: frozenset[str]) -> EdgeOptions:
    """Return the options of the edge; `secret` signs its tokens, and jobs may name the `speech_models`."""
    spool = settings.own / "uploads"
    spool.mkdir(parents=True, exist_ok=True)
    return EdgeOptions(
        **msgspec.structs.asdict(settings.edge),
        secret=secret,
        spool=spool,
        chunk_limit=settings.chunk_bytes,
        speech_models=speech_models,
        log_chunks=settings.log_level == "debug",
        trust=trust(settings),
        cors_origins=settings.allowed_origins,
        admin_apart=settings.admin_listen is not None,
        admin_key=None if settings.admin_key is None else apikeys.digest(settings.admin_key.get_secret_value()),
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return the bounds of connections, capped by the open files of this process."""
    most = listener.descriptors() - limits.RESERVED_DESCRIPTORS
    if settings.connections > most:
        log.warning("connections.limited", setting=variable("connections"), most=most, reason="open files (ulimit -n)")
    return ConnectionLimits(
        connections=min(settings.connections, most),
        per_address=settings.connections_per_address,
        idle_seconds=settings.edge.upload_idle_seconds,
        slowest=settings.edge.upload_slowest,
        trusted_proxies=settings.trusted_proxies,
    )
