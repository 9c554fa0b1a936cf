"""The parent of a machine's lanes: takes the data directory and the port, and keeps the lanes alive.

It serves no request and has no data. A lane ends at once when its supervisor does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import structlog

from infra.errors import WrongSetting
from infra.models.in_use import ModelInUse
from infra.service import listener
from infra.service.bundled_engines import bundled_engines
from infra.service.lane_template import READY, LaneTemplate, RunningLane
from infra.service.lanes import Orders, Placement
from infra.service.node_tls import certificate, trust
from infra.service.premises import Announce, Premises
from infra.service.process import first_of, on_stop, run_process
from infra.settings import Settings
from infra.transport.lanes import LaneStates
from infra.transport.tallies import LANE_BYTES
from infra.urls import Embedded, host_and_port, http_url, local_url
from streams.folding import retry
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND
from topics.errors import EarshotError, ServiceError

log = structlog.get_logger("earshot")

#: After a lane has served this long, its next restart is at once again.
STABLE_S: Final = 10.0
#: The longest pause before a restart.
LONGEST_PAUSE_S: Final = 30.0
#: Seconds that lanes have to stop.
STOP_S: Final = 40.0
HIGHEST_PORT: Final = 65535


class LaneProcess:
    """Keeps one lane alive."""

    def __init__(self, orders: Orders, states: LaneStates, fork: Callable[[Orders], Awaitable[RunningLane]]) -> None:
        self.orders = orders
        self._states = states
        self._fork = fork
        #: All lanes of the machine.
        self.lanes: Sequence[LaneProcess] = ()
        self.ready = asyncio.Event()
        #: Set when the lane ended before it was ever ready.
        self.failed = asyncio.Event()
        self._process: RunningLane | None = None
        self._stopping = self._restarting = False
        #: Whether the last process was ready.
        self._served = False

    @property
    def number(self) -> int:
        return self.orders.lane.number

    async def keep(self) -> None:
        """Run the lane again and again, until `stop`."""
        failures = 0
        while True:
            began = time.monotonic()
            status = await self._run()
            if self._stopping:
                return
            self.ready.clear()
            if self._restarting:
                self._restarting, failures = False, 0
                continue
            if not self._served:
                self.failed.set()
            failures = 0 if self._served and time.monotonic() - began > STABLE_S else failures + 1
            # The first restart is at once: its streams wait.
            pause = 0.0 if failures <= 1 and self._served else retry.pause(failures, LONGEST_PAUSE_S)
            self._states[self.number] = LaneStates.STARTING if not pause else LaneStates.FAILED
            log.error("lane.died", number=self.number, status=status, pause=pause)
            await asyncio.sleep(pause)

    async def _run(self) -> int | str:
        """Run the lane once; return its exit status, or why it could not start."""
        self._served = False
        try:
            lane = self._process = await self._fork(self.orders)
        except (EarshotError, OSError) as error:
            return str(error) or type(error).__name__
        try:
            with contextlib.suppress(ConnectionError):
                self._served = await lane.reader.readline() == READY
                if self._served:
                    self.ready.set()
                    self._states[self.number] = LaneStates.SERVING
            status = await lane.wait()
            for other in self.lanes:
                other.tell(f"{self.orders.urls[self.number]} {lane.number}\n")
            return status
        finally:
            self.orders.lane_tallies().clear()
            lane.writer.close()

    def tell(self, death: str) -> None:
        """Tell the lane, if it runs, which process of another one has died."""
        if self._process is not None and not self._process.has_ended:
            self._process.writer.write(death.encode())

    async def stop(self) -> None:
        """Ask the lane to stop, and kill it if it does not."""
        self._stopping = True
        await self._end()

    async def restart(self) -> None:
        """Have the lane stop, and start with the code that is installed now; return once it serves."""
        self.ready.clear()
        self._restarting = True
        self._states[self.number] = LaneStates.RESTARTING
        await self._end()
        await self.ready.wait()

    async def _end(self) -> None:
        if (lane := self._process) is None:
            return
        lane.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await lane.wait()
        except TimeoutError:
            log.error("lane.killed", number=self.number, reason=f"it did not stop in {STOP_S:.0f} s")
            lane.send_signal(signal.SIGKILL)
            await lane.wait()


class Supervisor:
    """Runs the lanes of a machine."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.premises = Premises(settings)
        self.stopping = asyncio.Event()
        self.lanes: list[LaneProcess] = []
        self._template = LaneTemplate()
        #: Has the model of all lanes; those of the lanes are forked from it.
        self._zygote = Zygote(COMMAND)
        self._model = ModelInUse(settings.data, settings.model, self._zygote)
        self._rolling: asyncio.Task[None] | None = None
        # Lanes read them: what is wrong with them is told once, before any starts.
        trust(settings), certificate(settings)

    async def run(self, announce: Announce, private: bool) -> int:
        """Serve until a signal; return the exit status of the process.

        Raises:
            EarshotError: no lane can start.
        """
        on_stop(self.stopping.set)
        began = time.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            lock = self.premises.occupy(stack)
            held, operators = self._take_ports(stack)
            self._start_templates(stack)
            demo = await self.premises.open_database(self.stopping)
            if demo is None:
                return 0
            placement = await self.premises.settle()
            engines = None
            if self.settings.bundled_engines:
                server = bundled_engines(self.settings)
                stack.push_async_callback(server.stop)
                engines = server.url, server.key
            port = int(held[0].getsockname()[1])
            shared = tuple(one.fileno() for one in operators)
            inner, urls = self._private_ports(stack, port, len(placement.partitions))
            self.lanes = _lanes(stack, placement, port, inner, urls, engines, lock.descriptor, shared, self._fork)
            for lane in self.lanes:
                lane.lanes = self.lanes
            keepers = [asyncio.create_task(lane.keep(), name=f"lane {lane.number}") for lane in self.lanes]
            # After the lanes have stopped: the end of its keeper ends a lane at once.
            stack.callback(lambda: [keeper.cancel() for keeper in keepers])
            stack.push_async_callback(self._stop)
            if not await self._all_ready():
                return 1
            if not self.stopping.is_set():
                url = local_url(self.settings.host, port)
                log.info("service.ready", seconds=round(time.monotonic() - began, 2), url=url, lanes=len(self.lanes))
                await self.premises.welcome(announce, url, demo, private)
                if engines is not None:
                    await server.start()
                asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._roll)
                await self.stopping.wait()
        log.info("service.stopped", failed=False)
        return 0

    def _roll(self) -> None:
        if self._rolling is None or self._rolling.done():
            self._rolling = asyncio.create_task(self._restart_all(), name="rolling restart")

    async def _restart_all(self) -> None:
        """Restart lane after lane with the code that is installed now, if it takes orders of this version."""
        began = time.monotonic()
        try:
            await self._template.replace()
        except (EarshotError, OSError) as error:
            log.error("restart.refused", reason=str(error) or type(error).__name__)
            return
        await asyncio.to_thread(self._zygote.stop)
        # It starts while all lanes still serve.
        await asyncio.to_thread(self._model.preload)
        for lane in self.lanes:
            if not self.stopping.is_set():
                await lane.restart()
                log.info("lane.restarted", number=lane.number)
        log.info("service.restarted", seconds=round(time.monotonic() - began, 2))

    def _start_templates(self, stack: contextlib.AsyncExitStack) -> None:
        """Start the processes from which lanes and their zygotes are forked, while the database opens."""
        stack.push_async_callback(asyncio.to_thread, self._zygote.stop)
        stack.callback(self._template.stop)
        self._zygote.start_beside()
        stack.callback(asyncio.create_task(self._template.start(), name="lane template").cancel)

    async def _fork(self, orders: Orders) -> RunningLane:
        """Start a lane with a zygote of its own.

        Raises:
            EarshotError, OSError: it cannot start.
        """
        await asyncio.gather(self._template.start(), asyncio.to_thread(self._model.preload))
        with await asyncio.to_thread(self._zygote.further) as zygote:
            return await self._template.fork(orders, zygote)

    def _take_ports(self, stack: contextlib.AsyncExitStack) -> tuple[list[socket.socket], list[socket.socket]]:
        """Return sockets that keep the public port for the lanes, and those of the operator's address."""
        settings = self.settings
        # Without SO_REUSEPORT first: otherwise this would share the port of another deployment.
        held = listener.hold(listener.listen(settings.host, settings.port))
        stack.callback(listener.close, held)
        operators: list[socket.socket] = []
        if settings.admin_listen is not None:
            # All lanes accept from them, so that no lane is needed for it.
            operators = listener.listen(*host_and_port(settings.admin_listen), "admin_listen")
            stack.callback(listener.close, operators)
        return held, operators

    def _private_ports(
        self, stack: contextlib.AsyncExitStack, port: int, count: int
    ) -> tuple[list[list[socket.socket]], tuple[str, ...]]:
        """Return the listeners of each lane for other lanes and nodes, and its URL.

        Nodes on Kafka are on other machines too; their ports follow the public one, for firewalls.

        Raises:
            EarshotError: a port cannot be used.
        """
        settings, is_alone = self.settings, isinstance(self.settings.log, Embedded)
        host = "127.0.0.1" if is_alone else settings.host
        needed = f"on Kafka, {count} lanes need the {count} ports after {port} too"
        if not is_alone and port + count > HIGHEST_PORT:
            raise WrongSetting("port", needed)
        sockets: list[list[socket.socket]] = []
        for number in range(count):
            try:
                sockets.append(listener.listen(host, 0 if is_alone else port + 1 + number))
            except ServiceError as error:
                raise ServiceError(f"{error}; {needed}") from error
            stack.callback(listener.close, sockets[-1])
        named = host if settings.advertise is None or is_alone else urlsplit(settings.advertise).hostname or host
        secure = settings.node_certificate is not None and not is_alone
        urls = tuple(http_url(named, one[0].getsockname()[1]) for one in sockets)
        return sockets, tuple(url.replace("http:", "https:", 1) for url in urls) if secure else urls

    async def _all_ready(self) -> bool:
        """Wait until each lane has served or failed once, or a signal; return False if none serves."""
        await asyncio.gather(*(first_of(lane.ready, lane.failed, self.stopping) for lane in self.lanes))
        return self.stopping.is_set() or any(lane.ready.is_set() for lane in self.lanes)

    async def _stop(self) -> None:
        await asyncio.gather(*(lane.stop() for lane in self.lanes))


def _lanes(
    stack: contextlib.AsyncExitStack,
    placement: Placement,
    port: int,
    private: list[list[socket.socket]],
    urls: tuple[str, ...],
    engines: tuple[str, str] | None,
    lock: int,
    operators: tuple[int, ...],
    fork: Callable[[Orders], Awaitable[RunningLane]],
) -> list[LaneProcess]:
    """Return the lanes of a placement with what connects them, not started yet."""
    count = len(placement.partitions)
    # What is sent to a lane that has died waits for its successor.
    mail = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    stack.callback(listener.close, [end for pair in mail for end in pair])
    board = os.memfd_create("lanes", os.MFD_CLOEXEC)
    stack.callback(os.close, board)
    os.ftruncate(board, count)
    states = LaneStates(board, count)
    tallies = os.memfd_create("tallies", os.MFD_CLOEXEC)
    stack.callback(os.close, tallies)
    os.ftruncate(tallies, count * LANE_BYTES)
    outboxes = tuple(outbox.fileno() for outbox, _ in mail)
    return [
        LaneProcess(
            Orders(
                lane=lane,
                placement=placement.partitions,
                urls=urls,
                port=port,
                engines=engines,
                lock=lock,
                private=tuple(one.fileno() for one in private[lane.number]),
                operators=operators,
                inbox=mail[lane.number][1].fileno(),
                outboxes=outboxes,
                states=board,
                tallies=tallies,
            ),
            states,
            fork,
        )
        for lane in placement.lanes()
    ]


def run(settings: Settings, announce: Announce, private: bool) -> int:
    """Run the lanes of this machine until SIGINT, SIGTERM or SIGHUP; return the exit status.

    Raises:
        EarshotError: they cannot start.
    """
    return run_process(settings, lambda: Supervisor(settings).run(announce, private))
