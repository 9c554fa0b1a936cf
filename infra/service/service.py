"""The composition root: settings in, a running service out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import structlog
import uvicorn

from app.http.forwarding import Forwarder
from app.main import Ports, create_app
from app.options import EdgeOptions
from infra import logs
from infra.db.bootstrap import Bootstrap, FirstKeys, bootstrap, first_keys
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.ledger import SqlLedger
from infra.db.secret import token_secret
from infra.db.speakers import SqlRoster
from infra.errors import WrongSetting, variable
from infra.models.in_use import ModelInUse
from infra.service import directories, listener
from infra.service.jobs import JobServices
from infra.service.memory import give_back
from infra.service.speakers import Operator, keep_sweeping
from infra.settings import Settings
from infra.urls import Embedded, local_url
from streams.embedded.log import EmbeddedLog
from streams.models.shelf import Shelf
from streams.node.backend import Backend, EmbeddedBackend, KafkaBackend
from streams.node.node import Node, NodeOptions
from topics import apikeys, catalog
from topics.errors import DirectoryDown, EngineError, ServiceError

log = structlog.get_logger("earshot")

#: A health check gets this long to see that the process is about to stop.
RED_SECONDS: Final = 1.0
STOP_SECONDS: Final = 20.0


Announce = Callable[["Service", FirstKeys], None]


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
        self._sockets: list[socket.socket] = []

    async def run(self, announce: Announce) -> int:
        """Serve until a signal or a failure; return the exit status of the process."""
        began = time.monotonic()
        directories.prepare(self.settings)
        self._sockets = listener.listen(self.settings.host, self.settings.port)
        demo, shelf = await asyncio.gather(self._open_database(), asyncio.to_thread(self._open_model))
        with _naming("voices_url", self.settings.voices_url):
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
            await self._start(self.node)
            await self._until(self.node.served)
            if self.node.ready() is None and not self.stopping.is_set():
                log.info("service.ready", seconds=round(time.monotonic() - began, 2), url=self.url)
                async with self._first_keys(demo) as keys:
                    announce(self, keys)
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
        return local_url(self.settings.host, self.port)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._sockets[0].getsockname()[1])

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
        """Answer requests until the server is told to stop; whatever ends it stops the process."""
        try:
            await server.serve(self._sockets)
        except SystemExit:
            log.error("http.failed", host=self.settings.host, port=self.settings.port)
            self.failed = True
        self.stopping.set()

    async def _start(self, node: Node) -> None:
        """Start the streams; what Kafka refuses names the settings that ask for it."""
        try:
            await node.start()
        except ServiceError as error:
            if isinstance(self.settings.log, Embedded):
                raise
            if error.__cause__ is None:  # Kafka answered, and said no.
                error.add_note(f"see {variable('partitions')} and {variable('kafka_replication')}")
            raise _named("broker", error) from error

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

    async def _open_database(self) -> Bootstrap:
        try:
            await self.database.migrate()
        except DirectoryDown as error:
            if self.settings.database_url is None:
                raise
            raise _named("database_url", error) from error
        # A kill between a removal and this left in the file what was removed.
        await self.database.scrub()
        keys = (self.settings.bootstrap_project_key, self.settings.bootstrap_org_key)
        project, organization = (None if key is None else key.get_secret_value() for key in keys)
        demo = await bootstrap(self.database, _now_ms(), project, organization)
        for field in demo.unused:
            log.warning("bootstrap.unused", setting=variable(field), reason="this is not the first start")
        return demo

    def _open_model(self) -> Shelf:
        with _naming("model", self.settings.model):
            return self.model.open()

    @contextlib.asynccontextmanager
    async def _first_keys(self, demo: Bootstrap) -> AsyncIterator[FirstKeys]:
        """Yield the keys to show; none where all were shown before."""
        if not demo.keyless:
            yield FirstKeys()
            return
        async with first_keys(self.database, _now_ms(), demo) as keys:
            yield keys

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


@contextlib.contextmanager
def _naming(field: str, value: str | None) -> Iterator[None]:
    """Name the setting that is at fault, where it is set; raises WrongSetting."""
    try:
        yield
    except (EngineError, ServiceError) as error:
        if value is None:
            raise
        raise WrongSetting(field, str(error)) from error


def _named(field: str, error: ServiceError) -> ServiceError:
    """Return a failure that begins with the setting which says where its cause is; it may pass by itself."""
    named = ServiceError(f"{variable(field)}: {error}")
    for note in getattr(error, "__notes__", ()):
        named.add_note(note)
    return named


def _now_ms() -> int:
    return int(time.time() * 1000)


def run(settings: Settings, announce: Announce) -> int:
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


async def _main(settings: Settings, announce: Announce) -> int:
    service = Service(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    return await service.run(announce)


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
