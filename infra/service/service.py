"""The composition root: settings in, a running service out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Final

import structlog
import uvicorn

from app.http.forwarding import Forwarder
from app.main import Ports, create_app
from app.options import EdgeOptions
from infra import logs
from infra.db.bootstrap import Bootstrapped, bootstrap
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.ledger import SqlLedger
from infra.db.secret import token_secret
from infra.db.speakers import SqlRoster
from infra.models.in_use import ModelInUse
from infra.service.jobs import JobServices
from infra.service.memory import give_back
from infra.service.speakers import Operator, keep_sweeping
from infra.settings import Settings, variable
from infra.urls import Embedded
from streams.embedded.log import EmbeddedLog
from streams.node.backend import Backend, EmbeddedBackend, KafkaBackend
from streams.node.node import Node, NodeOptions
from topics import apikeys, catalog

log = structlog.get_logger("earshot")

#: A health check gets this long to see that the process is about to stop.
RED_SECONDS: Final = 1.0
STOP_SECONDS: Final = 20.0


class Service:
    """One process of the service: HTTP server, Faust application and analyser on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = asyncio.Event()
        self.failed = False
        self.database = Database(settings.database)
        self.model = ModelInUse(settings.data, settings.model)
        self.jobs: JobServices | None = None
        self.node: Node | None = None
        self.server: uvicorn.Server | None = None
        self.forwarder: Forwarder | None = None

    async def run(self, announce: Callable[[Service, Bootstrapped], None]) -> int:
        """Serve until a signal or a failure; return the exit status of the process."""
        began = time.monotonic()
        self.settings.data.mkdir(parents=True, exist_ok=True)
        bootstrapped, shelf = await asyncio.gather(self._open_database(), asyncio.to_thread(self.model.open))
        self.jobs = JobServices(self.settings, shelf, SqlRoster(self.database))
        ledger = SqlLedger(self.database)
        backend, options = self._backend(), self._node_options()
        self.node = Node(options, shelf, backend, self._fail, self.jobs.performers, ledger)
        edge_options = self._edge_options(await token_secret(self.database))
        directory, speakers = SqlDirectory(self.database), self.jobs.speakers
        ports = Ports(
            sessions=self.node,
            jobs=self.node.jobs,
            directory=directory,
            prober=self.jobs.prober,
            speakers=speakers,
            health=self.node,
            gauges=self._gauges,
            administration=Operator(self.database, speakers.sweep),
        )
        app = create_app(ports, edge_options)
        self.forwarder = app.state.forwarder
        self.server = _server(app, self.settings)
        serving = asyncio.create_task(self._serve(self.server), name="http")
        watching = [
            asyncio.create_task(self.model.watch(shelf), name="model"),
            asyncio.create_task(keep_sweeping(speakers.sweep), name="voices"),
        ]
        try:
            await self.node.start()
            await self._until(self.node.served)
            if self.node.ready() is None:
                log.info("service.ready", seconds=round(time.monotonic() - began, 2), url=self.url)
                announce(self, bootstrapped)
                # Only now: nobody waits for a child before the first job, and starting one takes from our own start.
                await self.jobs.start()
                give_back()
                await self.stopping.wait()
        finally:
            for watch in watching:
                watch.cancel()
            await self._stop(serving)
        return 1 if self.failed else 0

    @property
    def url(self) -> str:
        """Where the service answers, once it listens."""
        host = self.settings.host
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        servers = self.server.servers if self.server is not None and self.server.started else []
        sockets = [socket for server in servers for socket in server.sockets]
        return int(sockets[0].getsockname()[1]) if sockets else self.settings.port

    def stop(self) -> None:
        """Begin to stop."""
        self.stopping.set()

    def _fail(self) -> None:
        """Something died: the health check is red from now on, and the process stops."""
        self.failed = True
        asyncio.get_running_loop().call_later(RED_SECONDS, self.stopping.set)

    async def _until(self, event: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self.stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _serve(self, server: uvicorn.Server) -> None:
        """Listen; a port that cannot be had stops the process."""
        try:
            await server.serve()
        except SystemExit:
            log.error("http.failed", host=self.settings.host, port=self.settings.port)
            self.failed = True
        self.stopping.set()

    async def _stop(self, serving: asyncio.Task[None]) -> None:
        # Readers that wait are answered first: the server would wait for them.
        if self.node is not None:
            self.node.withdraw()
        if self.server is not None:
            self.server.should_exit = True
        await serving
        if self.node is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.node.stop()
        if self.jobs is not None:
            await self.jobs.stop()
        if self.forwarder is not None:
            await self.forwarder.close()
        await self.database.close()
        log.info("service.stopped", failed=self.failed)

    async def _open_database(self) -> Bootstrapped:
        await self.database.migrate()
        # A kill between a removal and this left in the file what was removed.
        await self.database.scrub()
        keys = (self.settings.bootstrap_project_key, self.settings.bootstrap_org_key)
        project, organization = (None if key is None else key.get_secret_value() for key in keys)
        made = await bootstrap(self.database, int(time.time() * 1000), project, organization)
        for field in made.unused:
            log.warning("bootstrap.unused", setting=variable(field), reason="this is not the first start")
        return made

    def _backend(self) -> Backend:
        settings = self.settings
        topics = catalog.topics(settings.audio_retention_seconds * 1000, settings.chunk_limit)
        broker, partitions = settings.log, settings.partition_count
        if isinstance(broker, Embedded):
            opened = EmbeddedLog.open(broker.directory, sync=broker.sync, queue_bytes=settings.queue_bytes)
            return EmbeddedBackend(opened, topics, partitions, time.time)
        limit = catalog.record_limit(settings.chunk_limit)
        return KafkaBackend(broker.hosts, topics, partitions, settings.kafka_replication, limit)

    def _node_options(self) -> NodeOptions:
        settings = self.settings
        directory = settings.data / ("tables" if isinstance(settings.log, Embedded) else "tables-kafka")
        directory.mkdir(parents=True, exist_ok=True)
        return NodeOptions(
            directory=directory,
            partitions=settings.partition_count,
            record_limit=catalog.record_limit(settings.chunk_limit),
            idle_seconds=settings.session_idle_seconds,
            queue_bytes=settings.queue_bytes,
            workers=settings.workers,
            url=settings.advertise or f"http://{settings.host}:{settings.port}",
            sweep_seconds=min(30.0, max(0.5, settings.session_idle_seconds / 20)),
            job_keep_ms=settings.job_retention_seconds * 1000,
        )

    def _edge_options(self, secret: bytes) -> EdgeOptions:
        settings = self.settings
        spool = settings.data / "uploads"
        spool.mkdir(parents=True, exist_ok=True)
        return EdgeOptions(
            secret=secret,
            spool=spool,
            chunk_limit=settings.chunk_limit,
            analyze_limit=settings.analyze_limit,
            upload_limit=settings.upload_limit,
            upload_idle_seconds=settings.upload_idle_seconds,
            poll_seconds=settings.poll_seconds,
            key_cache_seconds=settings.key_cache_seconds,
            log_chunks=settings.log_level == "debug",
            admin_key=None if settings.admin_key is None else apikeys.digest(settings.admin_key.get_secret_value()),
        )

    def _gauges(self) -> list[tuple[str, str, float]]:
        return [] if self.node is None else self.node.gauges()


def _server(app: object, settings: Settings) -> uvicorn.Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        loop="none",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # Signals belong to the service, which stops the streams after the server.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    return server


def run(settings: Settings, announce: Callable[[Service, Bootstrapped], None]) -> int:
    """Run the service in this process until SIGINT or SIGTERM; return the exit status.

    Raises:
        EarshotError: why it cannot start.
    """
    keys = (
        settings.bootstrap_project_key,
        settings.bootstrap_org_key,
        settings.speech_key,
        settings.caption_key,
        settings.translation_key,
        settings.speaker_key,
        settings.admin_key,
    )
    secrets = [key.get_secret_value() for key in keys if key]
    logs.configure(settings.log_level, settings.log_format, secrets)
    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(_main(settings, announce))


async def _main(settings: Settings, announce: Callable[[Service, Bootstrapped], None]) -> int:
    service = Service(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    return await service.run(announce)


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
