"""Ports for services that tests and benchmarks start."""

import random
import socket
from typing import Final

#: Below the ephemeral ports of the systems, where an outgoing connection could take a port that was just found, or one
#: that a restarted service needs again.
PORTS: Final = range(12_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return unbound ports of this machine."""
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
