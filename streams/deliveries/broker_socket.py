"""Sockets of MQTT clients: to checked addresses, with TLS by the name of the URL, and bounded in what they take in."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from streams.deliveries.addresses import CONNECT_SECONDS, Resolver

#: Bytes that a broker may send between two messages of ours: it acknowledges, and says when Home Assistant starts.
MOST_BYTES: Final = 64 * 1024
#: paho asks for as many bytes as a packet has by its header, up to 256 MB.
READ_BYTES: Final = 4096


class BrokerSocket:
    """A connected socket as paho uses it (`paho.mqtt.client.SocketLike`). Loop only."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        #: Bytes that may still come in.
        self.allowance = MOST_BYTES

    def recv(self, size: int) -> bytes:
        data = self._sock.recv(min(size, READ_BYTES))
        self.allowance -= len(data)
        if self.allowance < 0:
            raise ConnectionAbortedError("the broker sends too much")
        return data

    def send(self, data: bytes | bytearray) -> int:
        return self._sock.send(data)

    def pending(self) -> int:
        """Return the number of decrypted bytes that wait."""
        return self._sock.pending() if isinstance(self._sock, ssl.SSLSocket) else 0

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def close(self) -> None:
        """Close it, and forget what waits for it: another socket may get its number."""
        if (file := self._sock.fileno()) >= 0:
            with suppress(RuntimeError):  # Not on the loop: nothing waits yet.
                loop = asyncio.get_running_loop()
                loop.remove_reader(file)
                loop.remove_writer(file)
            self._sock.close()


async def open_socket(resolver: Resolver, host: str, port: int, tls: ssl.SSLContext | None) -> BrokerSocket:
    """Connect to a checked address of a host; no thread waits meanwhile.

    Raises:
        OSError: as in `Resolver.connect`, or the handshake of TLS fails.
    """
    loop = asyncio.get_running_loop()

    async def connect(address: str) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    sock = await resolver.connect(host, port, connect)
    if tls is None:
        return BrokerSocket(sock)
    secure = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secure.do_handshake()
                return BrokerSocket(secure)
            except ssl.SSLWantReadError:
                await _ready(secure.fileno(), loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(secure.fileno(), loop.add_writer, loop.remove_writer)
    except BaseException:
        secure.close()
        raise


async def _ready(file: int, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]) -> None:
    """Wait until a socket is readable or writable."""
    ready = asyncio.Event()
    add(file, ready.set)
    try:
        await ready.wait()
    finally:
        remove(file)
