"""Ports for services that tests and benchmarks start, and servers in threads."""

import itertools
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from threading import Thread
from typing import Final, TypeVar

from tests.lengths import length

Server = TypeVar("Server", bound=BaseServer)

#: More than there are in `python -m tests`.
STAGES: Final = 8
#: This process's number among those of pytest-xdist, and how many there are.
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
#: Below the ephemeral ports of the systems, where an outgoing connection could take a port that was just found, or one
#: that a restarted service needs again. Nor does another process of the tests find them, whatever its stage is.
PORTS: Final = range(12_000, 32_000)[length("STAGE", 0) :: STAGES][_WORKER::_WORKERS]
#: In turn, because a port that was found may not be bound yet.
_TURN: Final = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))


def free_ports(count: int) -> list[int]:
    """Return unbound ports of this machine."""
    held: list[socket.socket] = []
    for port in itertools.islice(_TURN, len(PORTS)):
        try:
            held.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        if len(held) == count:
            break
    found = [int(listener.getsockname()[1]) for listener in held]
    for listener in held:
        listener.close()
    return found


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run a server in a thread."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Return whether a process that writes to a log takes connections; AssertionError if it has ended."""
    assert process.poll() is None, log.read_text()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_port(following: int = 0) -> int:
    """Return an unbound port with as many unbound ones after it."""
    while True:
        (port,) = free_ports(1)
        with ExitStack() as stack, suppress(OSError):
            for other in range(port + 1, port + 1 + following):
                stack.enter_context(socket.create_server(("127.0.0.1", other)))
            return port
