"""The composition root: takes settings and runs the service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

import msgspec
import structlog
import uvicorn
from starlette.applications import Starlette

from app.main import Ports, create_app
from infra import logs
from infra.db import intact
from infra.db.bootstrap import Bootstrap, FirstKeys, bootstrap, first_keys
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.ledger import SqlLedger
from infra.db.projects import SqlProjects
from infra.db.secret import NODE_METADATA, token_secret
from infra.db.speakers import SqlSpeakerStore
from infra.db.stops import SqlStops
from infra.errors import named, naming, variable
from infra.models.in_use import ModelInUse
from infra.service import broker, data_directory, directories, limits, listener
from infra.service.deletion import Operator, ProjectDeletions
from infra.service.erasure import keep_erasing
from infra.service.health import ServiceHealth
from infra.service.jobs import JobServices
from infra.service.key_uses import keep_noting
from infra.service.links import OneTimeLinks
from infra.service.lives import begin_life
from infra.service.models import ModelsInUse
from infra.service.nodes import ServiceNodes
from infra.service.options import connection_limits, edge_options, node_options
from infra.service.own_sounds import OwnSounds
from infra.service.speakers import keep_sweeping
from infra.settings import Settings
from infra.transport.connections import Connections
from infra.transport.http_hooks import check_hooks
from infra.transport.http_protocol import ClientConnection
from infra.urls import Embedded, host_and_port, http_url, local_url
from streams.cores import LOOP_SLICE, wake_promptly
from streams.embedded.lock import DirectoryLock
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.memory import trim_heap
from streams.models.loaded_models import LoadedModels
from streams.node.node import Node
from streams.processes.zygote_process import Zygote
from streams.workers.messages import memory_bytes, slot_bytes
from streams.workers.workers import Workers
from topics.errors import DirectoryDown, NotFound, ServiceError

log = structlog.get_logger("earshot")

#: Time for a health check to notice that the process is about to stop.
RED_SECONDS: Final = 1.0
STOP_SECONDS: Final = 20.0
#: The most connections to the operator's address.
OPERATORS: Final = 64


class EarshotService:
    """One process of the service: an HTTP server and a node on one event loop."""

    def __init__(self, settings: Settings, zygote: Zygote) -> None:
        """Take over a zygote, which may still be starting."""
        self.settings = settings
        self.stopping = asyncio.Event()
        self.failed = False
        self.database = Database(settings.database)
        self.zygote = zygote
        self.model = ModelInUse(settings.data, settings.model, self.zygote)
        self.connections = Connections(connection_limits(settings))
        # The operator has bounds of their own, to get in when other clients do not.
        self._operators = Connections(msgspec.structs.replace(self.connections.limits, connections=OPERATORS))
        self._sockets: list[socket.socket] = []
        #: Sockets of the operator's address; empty if the operator's interface shares the main one.
        self._admin_sockets: list[socket.socket] = []

    async def run(self, announce: Announce, private: bool) -> int:
        """Serve until a signal or a failure; return the exit status of the process.

        `announce` reports to the person who started the service. With `private`, only that person reads it, so it may
        show new keys and a sign-in link.

        Raises:
            EarshotError: the service cannot start.
        """
        began = time.monotonic()
        # The stack closes everything in reverse order, however this ends.
        async with contextlib.AsyncExitStack() as stack:
            lock = self._occupy(stack)
            options = node_options(self.settings, self._node_url, self.database.file)
            marks = Marks(options.directory / MARKS)
            stack.callback(marks.close)
            stack.push_async_callback(asyncio.to_thread, self.zygote.stop)
            demo, models = await self._open(marks)
            if demo is None:
                return 0
            memory = memory_bytes(slot_bytes(self.settings.chunk_bytes))
            workers = Workers(self.settings.workers, partial(self.zygote.fork, memory))
            jobs = JobServices(self.settings, models, SqlSpeakerStore(self.database), workers)
            stack.push_async_callback(jobs.stop)
            group_secret = await token_secret(self.database, NODE_METADATA)
            backend, membership = await broker.open_log(
                self.settings, options.directory, options.url, group_secret, self.database, marks, lock
            )
            lives = stack.enter_context(begin_life(self.settings.data))
            node = Node(
                msgspec.structs.replace(options, lives=lives),
                models,
                backend,
                self._fail,
                jobs.open_file,
                workers,
                jobs.services,
                SqlLedger(self.database),
                membership,
                SqlStops(self.database),
            )
            deletions = ProjectDeletions(self.database, node.deleted_projects)
            await deletions.check()
            nodes = self._nodes(node, models, jobs)
            stack.push_async_callback(nodes.close)
            self._links = OneTimeLinks(self.database)
            app = self._app(node, jobs, await token_secret(self.database), nodes, models, deletions)
            stack.push_async_callback(app.state.forwarder.close)
            stack.callback(lambda: log.info("service.stopped", failed=self.failed))
            stack.push_async_callback(self._stop_node, node)
            self._answer(stack, node, app)
            keepers = {
                "model": self.model.watch(models),
                "voices": keep_sweeping(jobs.speakers.sweep),
                "outdated voices": jobs.speakers.warn_of_outdated(),
                "keys": keep_noting(app.state.keyrings, SqlProjects(self.database).note_used),
                "erasure": keep_erasing(self.settings, options.directory, node, self.database),
                "deleted projects": deletions.run(app.state.end_keys),
                "connections": self.connections.watch(),
                "operators": self._operators.watch(),
            }
            for name, keeper in keepers.items():
                stack.callback(node.tasks.spawn(keeper, name).cancel)
            await self._start(node)
            await self._until(node.served)
            # A partition that has stopped, or is taken over again just now, does not end the start.
            if node.alive() is None and not self.stopping.is_set():
                log.info("service.ready", seconds=round(time.monotonic() - began, 2), url=self.url)
                await self._welcome(announce, demo, private)
                # Not earlier: no child is needed before the first job, and starting one slows our own start.
                await jobs.start()
                trim_heap()
                await self.stopping.wait()
        return 1 if self.failed else 0

    def _occupy(self, stack: contextlib.AsyncExitStack) -> DirectoryLock:
        """Take the data directory and the ports."""
        directories.prepare(self.settings)
        directories.narrow(self.settings)
        # First: another process may use the directory, and then its database must not be migrated.
        lock = data_directory.lock(self.settings)
        stack.callback(lock.release)
        data_directory.tidy(self.settings)
        self._sockets = listener.listen(self.settings.host, self.settings.port)
        stack.callback(listener.close, self._sockets)
        if self.settings.admin_listen is not None:
            self._admin_sockets = listener.listen(*host_and_port(self.settings.admin_listen), "admin_listen")
            stack.callback(listener.close, self._admin_sockets)
        stack.push_async_callback(self.database.close)
        return lock

    def _answer(self, stack: contextlib.AsyncExitStack, node: Node, app: Starlette) -> None:
        """Answer requests at the service's address, and at the operator's if there is one."""
        self.connections.sender = app.state.sender
        self.connections.turns = self._operators.turns = app.state.turns
        fronts = (app, self._sockets, self.connections), (app.state.operator, self._admin_sockets, self._operators)
        for front, sockets, connections in fronts:
            if sockets:
                server = _server(front, self.settings, connections)
                serving = asyncio.create_task(self._serve(server, sockets), name="http")
                stack.push_async_callback(self._stop_serving, node, server, serving)

    async def _welcome(self, announce: Announce, demo: Bootstrap, private: bool) -> None:
        with contextlib.suppress(OSError):
            (self.settings.data / data_directory.LEFT_OUT).unlink()
        async with self._first_keys(demo, private) as keys:
            announce(self, demo, keys, await self._link() if private and self.settings.edge.dashboard else None)

    @property
    def url(self) -> str:
        return local_url(self.settings.host, self.port)

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    @property
    def _node_url(self) -> str:
        return self.settings.advertise or http_url(self.settings.host, self.port)

    def stop(self) -> None:
        self.stopping.set()

    def _fail(self) -> None:
        """Turn the health check red, then stop the process."""
        self.failed = True
        asyncio.get_running_loop().call_later(RED_SECONDS, self.stopping.set)

    async def _until(self, event: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self.stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _serve(self, server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        """Answer requests until the server stops; however it ends, the process stops too."""
        try:
            await server.serve(sockets)
        except SystemExit:
            log.error("http.failed", address=sockets[0].getsockname())
            self.failed = True
        self.stopping.set()

    async def _start(self, node: Node) -> None:
        """Start the streams; if Kafka refuses, name the settings at fault."""
        try:
            await node.start()
        except ServiceError as error:
            if isinstance(self.settings.log, Embedded):
                raise
            from streams.kafka.topics import TopicsDiffer  # A node on the embedded log does not load the Kafka client.

            if error.__cause__ is None and not isinstance(error, TopicsDiffer):  # Kafka answered, and refused.
                error.add_note(f"see {variable('partitions')} and {variable('kafka_replication')}")
            raise named("broker", error) from error

    async def _stop_serving(self, node: Node, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        # Waiting readers get an answer first; otherwise the server would wait for them.
        node.withdraw()
        server.should_exit = True
        await serving

    async def _stop_node(self, node: Node) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await node.stop()

    async def _open(self, marks: Marks) -> tuple[Bootstrap | None, LoadedModels]:
        """Open the database and load the model concurrently; return once both have ended, even if one failed."""
        database = asyncio.create_task(self._open_database(marks))
        model = asyncio.create_task(asyncio.to_thread(self._open_model))
        await asyncio.wait({database, model})
        if not model.cancelled():
            model.exception()  # Otherwise asyncio logs it if the database failed too.
        return database.result(), model.result()

    async def _open_database(self, marks: Marks) -> Bootstrap | None:
        """Check and migrate the database; return None if a signal ended the check."""
        broker = self.settings.log
        if self.database.file is not None and isinstance(broker, Embedded):
            begun = (broker.directory / "log").exists()
            await asyncio.to_thread(intact.check, self.database.file, marks.change, begun, self.stopping.is_set)
            if self.stopping.is_set():
                return None
        try:
            await self.database.migrate()
        except DirectoryDown as error:
            if self.settings.database_url is None:
                raise
            raise named("database_url", error) from error
        # If a removal was killed before its scrub, the file still holds the removed data.
        await self.database.scrub()
        keys = (self.settings.bootstrap_project_key, self.settings.bootstrap_org_key)
        project, organization = (None if key is None else key.get_secret_value() for key in keys)
        demo = await bootstrap(self.database, _now_ms(), project, organization)
        for field in demo.unused:
            log.warning("bootstrap.unused", setting=variable(field), reason="this is not the first start")
        return demo

    def _open_model(self) -> LoadedModels:
        with naming("model", self.settings.model):
            return self.model.open()

    @contextlib.asynccontextmanager
    async def _first_keys(self, demo: Bootstrap, private: bool) -> AsyncIterator[FirstKeys]:
        """Yield the keys to show: none if all were shown before, or if others could read them."""
        if not demo.keyless or not private:
            yield FirstKeys()
            return
        async with first_keys(self.database, _now_ms(), demo) as keys:
            yield keys

    async def _link(self) -> str | None:
        """Return the token of a sign-in link; None if the demo project was deleted or has no key."""
        with contextlib.suppress(NotFound):
            return await self._links.make()
        return None

    def _app(
        self,
        node: Node,
        jobs: JobServices,
        secret: bytes,
        nodes: ServiceNodes,
        loaded: LoadedModels,
        deletions: ProjectDeletions,
    ) -> Starlette:
        models = ModelsInUse(loaded, jobs.bundled_speech)
        options = edge_options(self.settings, secret, jobs.speech_models)
        health = ServiceHealth(node, self.database, models, options.spool, options.upload_bounds.free_bytes)
        ports = Ports(
            sessions=node.sessions,
            jobs=node.jobs,
            directory=SqlDirectory(self.database),
            prober=jobs.prober,
            speakers=jobs.speakers,
            health=health,
            gauges=health.gauges,
            projects=SqlProjects(self.database),
            sign_ins=self._links,
            own_sounds=OwnSounds(self.database, loaded),
            administration=Operator(self.database, deletions.check, jobs.speakers.sweep),
            models=models,
            nodes=nodes,
        )
        return create_app(ports, options)

    def _nodes(self, node: Node, models: LoadedModels, jobs: JobServices) -> ServiceNodes:
        settings = self.settings
        disks = {"data": settings.data}
        if isinstance(settings.log, Embedded):
            disks["log"] = settings.log.directory
        return ServiceNodes(
            node,
            models,
            jobs.engines,
            self._node_url,
            settings.queue_bytes,
            disks,
            settings.edge.upload_free_bytes,
            self.database,
            jobs.speakers.outdated,
        )


def _server(app: object, settings: Settings, connections: Connections) -> uvicorn.Server:
    check_hooks()
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        loop="none",
        http=partial(ClientConnection, door=connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # `ClientConnection` handles them, and the scheme is not used.
        proxy_headers=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # The service handles signals itself, to stop the streams after the server.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    return server


#: Reports to the person who started the service: the service, the demo project's state, new keys, and the token of a
#: link to the dashboard.
Announce = Callable[[EarshotService, Bootstrap, FirstKeys, str | None], None]


def _now_ms() -> int:
    return int(time.time() * 1000)


def run(settings: Settings, announce: Announce, private: bool, zygote: Zygote) -> int:
    """Run the service in this process until SIGINT, SIGTERM or SIGHUP; return the status (see `EarshotService.run`).

    Raises:
        EarshotError: the service cannot start.
    """
    logs.configure(settings.log_level, settings.log_format, settings.secrets, node=settings.advertise)
    os.umask(directories.UMASK)
    limits.forbid_core_dumps()
    wake_promptly(LOOP_SLICE)
    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(_main(settings, announce, private, zygote))


async def _main(settings: Settings, announce: Announce, private: bool, zygote: Zygote) -> int:
    limits.check()
    service = EarshotService(settings, zygote)
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup leaves it so
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, service.stop)
    return await service.run(announce, private)


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
