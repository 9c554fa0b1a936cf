"""Ports for what tests and benchmarks start."""

import random
import socket
from typing import Final

#: Below those that systems give to outgoing connections: one of these would otherwise take a port that was just found,
#: or that of a service which a test starts again.
PORTS: Final = range(12_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine to which nothing is bound now."""
    held: list[socket.socket] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
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


def free_port() -> int:
    return free_ports(1)[0]
