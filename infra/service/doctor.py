"""Looks for what keeps a service with these settings from working, beside a running one or without."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple, get_args

from app.admin.health import State, clock_findings, disk_findings
from infra.db.database import Database
from infra.db.seen_log import SqlLogMemory
from infra.engine_settings import EngineName
from infra.errors import naming, variable
from infra.extras import needed_for
from infra.models import manifests
from infra.models.registry import Registry
from infra.service import data_directory, limits
from infra.service.advertised import Untrusted, process_at
from infra.service.node_tls import trust
from infra.service.nodes import disk_facts, disks_of
from infra.settings import Settings
from infra.urls import Embedded, http_url, local_url
from streams import memory
from streams.clients.address import EngineAddress
from streams.clients.client import EngineClient
from streams.embedded.errors import LogLocked
from streams.models.manifest import Manifest
from topics import catalog
from topics.errors import EarshotError, Unavailable


class Check(NamedTuple):
    """What one check found; `slow` stands for what works, and needs somebody to look."""

    state: State
    about: str
    text: str


Found = AsyncGenerator[tuple[State, str], None]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)


class _Engine(EngineClient):
    path = "/"


def holder(settings: Settings) -> int | None:
    """Return the process that serves from the data directory, None if there is none.

    Raises:
        LogError: the directory cannot be used.
    """
    if not settings.data.exists():
        return None
    try:
        data_directory.lock(settings).release()
    except LogLocked as error:
        return error.holder
    return None


async def examine(settings: Settings, served: bool) -> AsyncGenerator[Check, None]:
    """Yield what the checks find; if the service is `served`, leave out what its own report has: disks and engines."""
    checks: Mapping[str, Callable[[Settings], Found]] = {
        "settings": _settings,
        "memory": _memory,
        "data": _data,
        **({} if served else {"disks": _disks}),
        "database": _database,
        "log": _log,
        "model": _model,
        **({} if served else {"engines": _engines}),
        "address": _address,
    }
    for about, check in checks.items():
        try:
            async with aclosing(check(settings)) as found:
                async for state, text in found:
                    yield Check(state, about, text)
        except (EarshotError, OSError, ModuleNotFoundError) as error:
            yield Check("bad", about, ": ".join([str(error), *getattr(error, "__notes__", ())]))


async def _settings(settings: Settings) -> Found:
    fields = sorted(map(variable, settings.model_fields_set))
    yield "good", f"set are {', '.join(fields)}" if fields else "all have their defaults"


async def _memory(settings: Settings) -> Found:
    found = list(limits.memory_findings(settings))
    for finding in found or [("good", f"{memory.allowed() / 1e9:.1f} GB are allowed to this process")]:
        yield finding


async def _data(settings: Settings) -> Found:
    where = settings.data.absolute()
    if not where.exists():
        yield "good", f"{where} is not there yet: the first start makes it"
    elif not os.access(where, os.R_OK | os.W_OK | os.X_OK):
        yield "bad", f"{where} cannot be used: run this as the user of the service"
    else:
        used = "no service runs on it" if (process := holder(settings)) is None else f"process {process} serves from it"
        yield "good", f"{where}: {used}"


async def _disks(settings: Settings) -> Found:
    there = {
        holds: next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
        for holds, path in disks_of(settings).items()
    }
    for disk in disk_facts(there, settings.edge.upload_free_bytes):
        found = list(disk_findings(disk))
        for finding in found:
            yield finding.state, finding.text
        if not found:
            yield "good", f"{disk.free_bytes / 1e9:.1f} GB are free on the disk of {disk.holds}"


async def _database(settings: Settings) -> Found:
    database = Database(settings.database)
    try:
        there = await database.check()
        yield "good", f"{database.place}" if there else f"{database.place} is not there yet: the first start makes it"
        if there:
            for finding in clock_findings(await database.clock_ahead_seconds(), "the database's"):
                yield finding.state, finding.text
    finally:
        await database.close()


async def _log(settings: Settings) -> Found:
    broker = settings.log
    if isinstance(broker, Embedded):
        yield "good", f"embedded, in {broker.directory.absolute()}"
        return
    with needed_for("a log on Kafka"):
        from streams.kafka.refusal import unreachable
        from streams.kafka.topics import examine_topics

    connection = settings.connection(broker.hosts)
    if (fault := await unreachable(connection)) is not None:
        yield "bad", f"{variable('broker')}: {fault}"
        return
    yield "good", f"brokers answer at {connection.addresses}"
    database = Database(settings.database)
    try:
        seen = await SqlLogMemory(database).seen() if await database.check() else None
    finally:
        await database.close()
    topics = catalog.topics(settings.edge.audio_retention_seconds * 1000, settings.chunk_bytes)
    missing, faults = await examine_topics(
        connection, topics, settings.partition_count, settings.kafka_replication, seen
    )
    for fault in faults:
        yield "bad", fault
    if missing:
        yield "good", f"topics that the next start makes: {', '.join(missing)}"
    elif not faults:
        yield "good", f"{len(topics)} topics have the settings and copies that they need"


async def _model(settings: Settings) -> Found:
    with naming("model", settings.model):
        registry = Registry(settings.data)
        directory = registry.find(registry.model_for_new_sessions(settings.model))
        manifest = manifests.read(directory)
        if isinstance(manifest, Manifest):
            manifests.check_files(directory, manifest)
    yield "good", f"{manifest.model_id}, whose files are whole"


async def _engines(settings: Settings) -> Found:
    if settings.bundled_engines:
        yield "good", "the service starts the bundled engines"
    for name in ENGINES:
        chosen = settings.engine(name)
        if chosen.url is None:
            continue
        engine = _Engine(EngineAddress(url=chosen.url, timeout_s=chosen.timeout))
        if await engine.reachable():
            yield "good", f"the {name} engine at {engine.address.origin} answers"
        else:
            yield "bad", f"{variable(f'{name}_url')}: the {name} engine at {engine.address.origin} does not answer"
        await engine.close()


async def _address(settings: Settings) -> Found:
    if isinstance(settings.log, Embedded) or settings.lane_count > 1 or not settings.port:
        return
    url = settings.advertise or http_url(settings.host, settings.port)
    runs = holder(settings) is not None
    try:
        there = await process_at(url, trust(settings))
    except Untrusted as error:
        yield "bad", f"{variable('node_certificate')}: {error}"
        return
    except Unavailable as error:
        if runs:
            yield "bad", f"{variable('advertise')}: other nodes cannot reach this one at {url}: {error}"
        else:
            yield "good", f"nothing answers at {url} yet"
        return
    here = await process_at(local_url(settings.host, settings.port)) if runs else None
    if runs and here is None:
        yield "bad", "the service on this machine is not live: see its /healthz"
    elif here is not None and here == there:
        yield "good", f"this node answers at {url}"
    else:
        yield "bad", f"{variable('advertise')}: {url} reaches another process"
