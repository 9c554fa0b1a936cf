"""The process from which lanes are forked, so that they share what they import: its supervisor's side, and its own.

It has one thread and no event loop, and opens nothing. The supervisor sends it the orders of a lane with the
descriptors that the lane gets. Each lane is forked twice and so becomes a child of the supervisor, which reaps it.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Final

import msgspec

from infra.service.lanes import Orders, version
from topics.errors import EarshotError, ServiceError

#: Starts it; the descriptor of its socket follows.
COMMAND: Final = (sys.executable, "-m", "infra.cli.lane")
#: BLAS would start threads, which do not survive a fork. Lanes share the cores anyway.
ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
#: The imports take a second or two of a core, longer on a busy machine.
START_SECONDS: Final = 60.0
#: Forking takes some milliseconds.
FORK_SECONDS: Final = 10.0
#: What a lane sends once it serves.
READY: Final = b"ready\n"

_LONGEST_ORDERS: Final = 1 << 17
#: The most descriptors of a message, as in the kernel.
_DESCRIPTORS: Final = 253
_THREADS: Final = "/proc/self/task"
#: See prctl(2).
_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36
_libc: Final = ctypes.CDLL(None)


class RunningLane:
    """A child that another process forked, and its connection. Loop only."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Watch a process by its id, and reap it at its end."""
        self.reader = reader
        self.writer = writer
        self.number = number
        self._handle = os.pidfd_open(number)
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._handle, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._end.set_result(os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1]))

    @property
    def has_ended(self) -> bool:
        return self._end.done()

    async def wait(self) -> int:
        """Return its exit status once it has ended."""
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        if not self.has_ended:
            signal.pidfd_send_signal(self._handle, number)


class LaneTemplate:
    """Starts the process on demand, and again after it ended. Loop only."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        #: What ends the process.
        self._end = contextlib.ExitStack()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Start it before its first use, which reports a failure."""
        with contextlib.suppress(EarshotError, OSError):
            async with self._lock:
                await self._running()

    async def fork(self, orders: Orders, zygote: socket.socket) -> RunningLane:
        """Return a new lane with these orders, whose zygote is at the other end of a socket.

        Raises:
            ServiceError: the process cannot start, or ended before it forked, or has another version.
            TimeoutError: it does not answer.
            OSError: this process can open no more files.
        """
        async with self._lock:
            control = await self._running()
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            _adopt_orphans(True)
            try:
                with theirs:
                    given = [theirs.fileno(), zygote.fileno(), *orders.descriptors]
                    socket.send_fds(control, [msgspec.json.encode(orders)], given)
                async with asyncio.timeout(FORK_SECONDS):
                    number = await reader.readline()
                if not number:
                    raise ServiceError("the process that lanes are forked from has ended")
                return RunningLane(int(number), reader, writer)
            except BaseException:
                writer.close()
                self.stop()
                raise
            finally:
                _adopt_orphans(False)

    async def replace(self) -> None:
        """Fork later lanes from a new process, which has the code that is installed now.

        Raises:
            ServiceError, OSError: as from `fork`; the old process is still in use.
        """
        async with self._lock:
            fresh = await _started()
            self.stop()
            self._control, self._end = fresh

    def stop(self) -> None:
        """End it, but not its lanes."""
        self._end.close()
        self._control = None

    async def _running(self) -> socket.socket:
        if self._control is not None:
            try:
                # It sends nothing more: whatever there is to read is its end.
                self._control.recv(1)
            except BlockingIOError:
                return self._control
            except ConnectionError:
                pass
            self.stop()
        self._control, self._end = await _started()
        return self._control


async def _started() -> tuple[socket.socket, contextlib.ExitStack]:
    """Start the process; return its socket once it can fork, and what ends it."""
    with contextlib.ExitStack() as stack:
        control = _start(stack)
        async with asyncio.timeout(START_SECONDS):
            greeting = await asyncio.get_running_loop().sock_recv(control, len(version()) + 1)
        if not greeting:
            raise ServiceError("the process that lanes are forked from does not start")
        if greeting.decode() != version():
            raise ServiceError("other formats are installed now: stop the service, and start it again")
        return control, stack.pop_all()


def _start(stack: contextlib.ExitStack) -> socket.socket:
    control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    control.setblocking(False)
    stack.callback(control.close)
    with theirs:
        process = subprocess.Popen(
            (*COMMAND, str(theirs.fileno())), pass_fds=(theirs.fileno(),), env=os.environ | ENVIRONMENT
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return control


def wait_for_orders(control: socket.socket) -> tuple[Orders, socket.socket, socket.socket]:
    """Fork a lane whenever the supervisor asks; in it, return its orders, its connection, and that of its zygote.

    The process itself exits with the supervisor.

    Raises:
        ServiceError: it has several threads.
    """
    _name("lane template")
    if (threads := len(os.listdir(_THREADS))) > 1:
        raise ServiceError(f"lanes cannot be forked: an imported library has started {threads - 1} threads")
    control.sendall(version().encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _LONGEST_ORDERS, _DESCRIPTORS)
        if not message:
            sys.exit()
        if (middle := os.fork()) == 0:
            middle = os.getpid()
            if os.fork():
                os._exit(0)
            control.close()
            # From then on it is a child of the supervisor.
            while os.getppid() == middle:
                time.sleep(0.001)
            line, zygote, *others = descriptors
            orders = msgspec.json.decode(message, type=Orders).renumbered(others)
            _name(f"lane {orders.lane.number}")
            supervisor = socket.socket(fileno=line)
            supervisor.sendall(b"%d\n" % os.getpid())
            return orders, supervisor, socket.socket(fileno=zygote)
        os.waitpid(middle, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _adopt_orphans(adopts: bool) -> None:
    """Become the parent of descendants that lose theirs, or no longer; then the first process of the machine does."""
    _libc.prctl(_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def _name(name: str) -> None:
    """Name this process for `ps` and the like."""
    _libc.prctl(_SET_NAME, name.encode(), 0, 0, 0)
