"""Asks a Kafka broker over a plain socket how many brokers it knows."""

import socket
import struct
from typing import Final

METADATA: Final = 3
VERSION: Final = 1
CLIENT: Final = b"earshot-probe"


def brokers(port: int, timeout: float = 2.0) -> int:
    """Return the number of live brokers known to the broker at 127.0.0.1:`port`; 0 while it does not answer.

    Sends a Metadata request, version 1, about no topics (https://kafka.apache.org/protocol). A broker answers it only
    after it caught up with the controllers, so an answer means that clients can work.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_request())
            return _count(connection)
    except OSError:
        return 0


def _request() -> bytes:
    header = struct.pack(f">hhih{len(CLIENT)}s", METADATA, VERSION, 1, len(CLIENT), CLIENT)
    body = header + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def _count(connection: socket.socket) -> int:
    """Read the answer's size, correlation id and length of the broker list, which comes first."""
    start = b""
    while len(start) < 12:
        part = connection.recv(12 - len(start))
        if not part:
            return 0
        start += part
    _, _, count = struct.unpack(">iii", start)
    return int(count)
