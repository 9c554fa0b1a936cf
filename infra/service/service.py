"""The composition root: takes settings and runs a node, alone or as a lane of a machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from starlette.applications import Starlette

from app.main import Ports, create_app
from infra.db.alarm_settings import SqlAlarmSettings
from infra.db.bootstrap import Bootstrap
from infra.db.directory import SqlDirectory
from infra.db.ledger import SqlLedger
from infra.db.projects import SqlProjects
from infra.db.secret import NODE_METADATA, token_secret
from infra.db.speakers import SqlSpeakerStore
from infra.db.stops import SqlStops
from infra.errors import WrongSetting, named, naming, variable
from infra.models.in_use import ModelInUse
from infra.service import broker
from infra.service.advertised import check_address, wait_for_standbys
from infra.service.alarm_settings import KnownDestinations, KnownRules
from infra.service.deletion import Operator, ProjectDeletions
from infra.service.doors import Doors
from infra.service.erasure import keep_erasing
from infra.service.health import ServiceHealth
from infra.service.jobs import JobServices
from infra.service.key_uses import keep_looking, keep_noting
from infra.service.lanes import Orders
from infra.service.links import OneTimeLinks
from infra.service.lives import begin_life
from infra.service.models import ModelsInUse
from infra.service.nodes import ServiceNodes, disks_of
from infra.service.options import edge_options, node_options
from infra.service.own_sounds import OwnSounds
from infra.service.premises import Announce, Premises
from infra.service.process import first_of, on_stop, run_process
from infra.service.speakers import keep_sweeping
from infra.service.traces import sent_traces
from infra.settings import Settings
from infra.urls import Embedded
from streams.embedded.lock import DirectoryLock
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.memory import trim_heap
from streams.models.loaded_models import LoadedModels
from streams.node.node import Node
from streams.processes.zygote_process import Zygote
from streams.workers.messages import memory_bytes, slot_bytes
from streams.workers.workers import Workers
from topics.errors import ServiceError
from topics.tally import Tallies, own_tallies

if TYPE_CHECKING:
    from streams.membership.neighbours import Neighbours

log = structlog.get_logger("earshot")

#: Time for a health check to notice that the process is about to stop.
RED_SECONDS: Final = 1.0
STOP_SECONDS: Final = 20.0
#: Longest time that a node which stops waits for the stand-by tables of the others.
STANDBY_SECONDS: Final = 10.0
#: Time for which a node that has left forwards requests to the others, until load balancers have noticed.
FORWARD_SECONDS: Final = 3.0


class EarshotService:
    """One process of the service: an HTTP server and a node on one event loop."""

    def __init__(self, settings: Settings, zygote: Zygote, orders: Orders | None = None) -> None:
        """Take over a zygote, which may still be starting; with `orders`, serve as a lane of a supervisor."""
        self.settings = settings
        self.stopping = asyncio.Event()
        self.failed = False
        #: The id by which this process answers, and its watch of other nodes' processes, if there are any.
        self.process = secrets.token_hex(8)
        self.neighbours: Neighbours | None = None
        self.zygote = zygote
        self.premises = Premises(settings)
        self.database = self.premises.database
        self.rules = KnownRules(self.database)
        self.model = ModelInUse(settings.data, settings.model, self.zygote)
        self._orders = orders
        self._tallies: Tallies = own_tallies if orders is None else orders.lane_tallies()
        self.doors = Doors(settings, orders, self._tallies, self._end)

    async def run(self, welcome: Welcome) -> int:
        """Serve until a signal or a failure; return the exit status of the process.

        `welcome` is called once, when the service is ready, with the state of the database's demo project.

        Raises:
            EarshotError: the service cannot start.
        """
        began = time.monotonic()
        # The stack closes everything in reverse order, however this ends.
        async with contextlib.AsyncExitStack() as stack:
            lock = self._occupy(stack)
            stack.push_async_callback(asyncio.to_thread, self.zygote.stop)
            await stack.enter_async_context(sent_traces(self.settings))
            demo, models = await self._open()
            if demo is None:
                return 0
            options = node_options(self.settings, self.doors.node_url, self.database.file)
            marks = Marks(options.directory / MARKS)
            stack.callback(marks.close)
            memory = memory_bytes(slot_bytes(self.settings.chunk_bytes))
            workers = Workers(self.settings.workers, partial(self.zygote.fork, memory))
            engines = None if self._orders is None else self._orders.engines
            jobs = JobServices(self.settings, models, SqlSpeakerStore(self.database), workers, engines)
            stack.push_async_callback(jobs.stop)
            group_secret = await token_secret(self.database, NODE_METADATA)
            placement = None if self._orders is None else self._orders.assignment()
            place = (self.settings, options.directory, options.url, group_secret, self.database, marks, lock)
            backend, membership, self.neighbours = await broker.open_log(*place, self.process, placement)
            lives = stack.enter_context(begin_life(self.settings.own))
            await self.rules.look()
            node = Node(
                msgspec.structs.replace(options, lives=lives, tallies=None if self._orders is None else self._tallies),
                models,
                backend,
                self._fail,
                jobs.open_file,
                workers,
                jobs.services,
                SqlLedger(self.database),
                membership,
                SqlStops(self.database),
                self.rules,
                KnownDestinations(self.database),
            )
            deletions = ProjectDeletions(self.database, node.deleted_projects)
            await deletions.check()
            nodes = self._nodes(node, models, jobs)
            stack.push_async_callback(nodes.close)
            app = self._app(node, jobs, await token_secret(self.database), nodes, models, deletions)
            stack.push_async_callback(app.state.forwarder.close)
            stack.callback(lambda: log.info("service.stopped", failed=self.failed))
            stack.push_async_callback(self._stop_node, node)
            self.doors.answer(stack, app, node.withdraw)
            if self.neighbours is not None:
                stack.callback(self.neighbours.stop)
            keepers = {
                "model": self.model.watch(models),
                "voices": keep_sweeping(jobs.speakers.sweep),
                "outdated voices": jobs.speakers.warn_of_outdated(),
                "database": self.database.keep_trying(),
                "keys": keep_noting(app.state.keyrings, SqlProjects(self.database).note_used),
                "erasure": keep_erasing(self.settings, options.directory, node, self.database),
                "rules": self.rules.keep_looking(),
                "deleted projects": deletions.run(app.state.end_keys),
                **self.doors.keepers(),
            }
            if self._orders is not None:
                keepers["ended keys"] = keep_looking(self.database, app.state.doubt)
            for name, keeper in keepers.items():
                stack.callback(node.tasks.spawn(keeper, name).cancel)
            await self._start(node)
            await first_of(node.served, self.stopping)
            # A partition that has stopped, or is taken over again just now, does not end the start.
            if node.alive() is None and not self.stopping.is_set():
                if self._orders is not None:
                    self.doors.join(stack, app, self._orders.lanes(node.sessions.owner))
                log.info("service.ready", seconds=round(time.monotonic() - began, 2), url=self.doors.url)
                await welcome(self, demo)
                # Not earlier: no child is needed before the first job, and starting one slows our own start.
                await jobs.start()
                trim_heap()
                await self.stopping.wait()
                if not self.failed:
                    await self._hand_over(node, nodes)
        return 1 if self.failed else 0

    async def _hand_over(self, node: Node, others: ServiceNodes) -> None:
        """Give the partitions to the other nodes, if there are any, and forward to them for a while."""
        node.owners.leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STANDBY_SECONDS):
                await wait_for_standbys(others.elsewhere(), self.doors.trust)
        if await node.partitions.hand_over():
            await asyncio.sleep(FORWARD_SECONDS)

    def _occupy(self, stack: contextlib.AsyncExitStack) -> DirectoryLock:
        """Take the data directory and the ports, as far as a supervisor has not."""
        if (orders := self._orders) is None:
            lock = self.premises.occupy(stack)
        else:
            stack.push_async_callback(self.database.close)
            lock = DirectoryLock.inherited(orders.lock)
            stack.callback(lock.release)
        self.doors.listen(stack)
        return lock

    def _end(self, failed: bool) -> None:
        """Stop the process, because a server has stopped."""
        self.failed = self.failed or failed
        self.stopping.set()

    def _fail(self) -> None:
        """Turn the health check red, then stop the process."""
        self.failed = True
        asyncio.get_running_loop().call_later(RED_SECONDS, self.stopping.set)

    async def _start(self, node: Node) -> None:
        """Start the streams; if Kafka refuses, name the settings at fault."""
        if isinstance(self.settings.log, Embedded):
            await node.start()
            return
        from streams.kafka.topics import TopicsDiffer  # A node on the embedded log does not load the Kafka client.

        await check_address(self.doors.node_url, self.process, self.doors.trust)
        try:
            await node.start()
        except TopicsDiffer as error:
            raise WrongSetting("broker", str(error)) from error
        except ServiceError as error:
            if error.__cause__ is None:  # Kafka answered, and refused.
                error.add_note(f"see {variable('partitions')} and {variable('kafka_replication')}")
            raise named("broker", error) from error

    async def _stop_node(self, node: Node) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await node.stop()

    async def _open(self) -> tuple[Bootstrap | None, LoadedModels]:
        """Open the database and load the model concurrently; return once both have ended, even if one failed."""
        database = asyncio.create_task(self._open_database())
        model = asyncio.create_task(asyncio.to_thread(self._open_model))
        await asyncio.wait({database, model})
        if not model.cancelled():
            model.exception()  # Otherwise asyncio logs it if the database failed too.
        return database.result(), model.result()

    async def _open_database(self) -> Bootstrap | None:
        """Open the database and place the partitions here, unless the supervisor did; return None after a signal."""
        if self._orders is not None:
            return Bootstrap()
        demo = await self.premises.open_database(self.stopping)
        if demo is not None:
            (only,) = (await self.premises.settle()).lanes()
            self.settings = self.settings.of_lane(only)
        return demo

    def _open_model(self) -> LoadedModels:
        with naming("model", self.settings.model):
            return self.model.open()

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
        assert node.deliveries is not None
        states = None if self._orders is None else self._orders.lane_states()
        free_bytes = options.upload_bounds.free_bytes
        health = ServiceHealth(node, self.database, models, options.spool, free_bytes, self.doors.connections, states)
        ports = Ports(
            sessions=node.sessions,
            jobs=node.jobs,
            standby=node.standby,
            directory=SqlDirectory(self.database),
            prober=jobs.prober,
            speakers=jobs.speakers,
            health=health,
            readings=lambda: chain(health.readings(), nodes.readings()),
            projects=SqlProjects(self.database),
            sign_ins=OneTimeLinks(self.database),
            own_sounds=OwnSounds(self.database, loaded),
            alarms=node.alarms,
            alarm_settings=SqlAlarmSettings(self.database, changed=self.rules.look),
            test_delivery=node.deliveries,
            administration=Operator(self.database, deletions.check, jobs.speakers.sweep),
            models=models,
            nodes=nodes,
            lanes={} if self._orders is None else self._orders.others(),
            tallies=self._tallies,
            tell=self._tell,
            heard=deletions.look,
            process=self.process,
            testify=None if self.neighbours is None else self.neighbours.testify,
        )
        return create_app(ports, options)

    def _tell(self, message: bytes) -> None:
        """Tell the other lanes; before this one serves, nobody has changed a key here."""
        if (lanes := self.doors.connections.lanes) is not None:
            lanes.tell(message)

    def _nodes(self, node: Node, models: LoadedModels, jobs: JobServices) -> ServiceNodes:
        settings = self.settings
        return ServiceNodes(
            node,
            models,
            jobs.engines,
            self.doors.node_url,
            settings.queue_bytes,
            disks_of(settings),
            settings.edge.upload_free_bytes,
            self.database,
            jobs.speakers.outdated,
            self.stopping.set,
            settings.lane.number if settings.lane.count > 1 else msgspec.UNSET,
        )


#: Tells whoever started a service that it is ready, and the state of the database's demo project.
Welcome = Callable[[EarshotService, Bootstrap], Awaitable[None]]


def run(settings: Settings, announce: Announce, private: bool, zygote: Zygote) -> int:
    """Run the service in this process until SIGINT, SIGTERM or SIGHUP; return the status (see `EarshotService.run`).

    `announce` reports to the person who started it; with `private`, only that person reads it.

    Raises:
        EarshotError: the service cannot start.
    """

    async def main() -> int:
        service = EarshotService(settings, zygote)
        on_stop(service.stopping.set)
        # By default it would end the process.
        refused = partial(
            log.error, "restart.refused", reason="there is one lane: stop the service, and start it again"
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, refused)

        async def welcome(service: EarshotService, demo: Bootstrap) -> None:
            await service.premises.welcome(announce, service.doors.url, demo, private)

        return await service.run(welcome)

    return run_process(settings, main)
