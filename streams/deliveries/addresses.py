"""Where deliveries may connect to: public addresses, and networks that the operator allows.

Whoever has the key of a project chooses its destinations, and must not reach the machines around the service with them
(server-side request forgery). So a host is resolved once, each of its addresses is checked, and the connection goes to
an address that was checked; whatever the name resolves to afterwards changes nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeVar

from httpcore2 import SOCKET_OPTION, AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream, ConnectError

from streams.deliveries.options import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
T = TypeVar("T")

#: Global unicast. Other IPv6 addresses are local, or translate to IPv4 (as NAT64 and IPv4-mapped ones).
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
#: What `is_global` lets pass in some versions of Python: networks with a purpose, tunnels to IPv4, Azure's metadata.
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20"),
    )
)
#: Names that are looked up at a time, each by a thread of its own.
LOOKUPS: Final = 16
#: Addresses of a host to try, and seconds for each.
TRIES: Final = 4
CONNECT_SECONDS: Final = 5.0


def is_public(address: Address) -> bool:
    """Return whether an address is reachable from anywhere, and no other address in disguise."""
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    special = any(address in one for one in _SPECIAL)
    return address.is_global and not address.is_multicast and not special


def look_up(host: str) -> asyncio.Future[Sequence[str]]:
    """Return the addresses of a host in the order of the system, as texts.

    The thread is not of the loop's, of which there are few: an attacker's name server may answer after half a minute.
    Nor does the end of the process wait for it.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(set: Callable[[Any], None], value: object) -> None:
        if not found.done():
            set(value)

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            # A link-local address ends in its interface.
            addresses = [str(address).partition("%")[0] for *_, (address, *_) in answers]
            given: tuple[Callable[[Any], None], object] = (found.set_result, addresses)
        except Exception as error:
            given = (found.set_exception, error)
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(settle, *given)

    Thread(target=ask, name="look-up", daemon=True).start()
    return found


class Resolver:
    """Resolves hosts to the addresses that may be used. Loop only."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        """Allow addresses of some networks besides the public ones."""
        self._allowed = tuple(allowed)
        self._slots = asyncio.Semaphore(LOOKUPS)
        #: A thread that looks up a name cannot be stopped, so all who wait for a name share one look-up.
        self._lookups: dict[str, asyncio.Task[Sequence[str]]] = {}

    def is_usable(self, address: Address) -> bool:
        return is_public(address) or any(address in one for one in self._allowed)

    async def connect(self, host: str, port: int, connect: Callable[[str], Awaitable[T]]) -> T:
        """Return what `connect` returns for the first usable address of a host that answers.

        Raises:
            OSError: there is no such host, none of its addresses may be used, or none answers.
        """
        *others, last = (await self.addresses(host))[:TRIES]
        for address in others:
            try:
                return await connect(address)
            except (OSError, ConnectError):
                continue
        return await connect(last)

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a host that may be used, one or more, as texts."""
        if (lookup := self._lookups.get(host)) is None:
            lookup = self._lookups[host] = asyncio.create_task(self._look_up(host))
            lookup.add_done_callback(lambda done: self._forget(host, done))
        found = await asyncio.shield(lookup)
        usable = [address for address in found if self.is_usable(ipaddress.ip_address(address))]
        if not usable:
            # Without the address: whoever has a project's key must not look up private names here.
            raise OSError(f"{host} has no public address, and deliveries go to public addresses only")
        return usable

    async def _look_up(self, host: str) -> Sequence[str]:
        async with self._slots:
            try:
                return await look_up(host)
            except (OSError, UnicodeError) as error:
                raise OSError(f"there is no host {host}") from error

    def _forget(self, host: str, done: asyncio.Task[Sequence[str]]) -> None:
        del self._lookups[host]
        if not done.cancelled():
            done.exception()  # Otherwise asyncio logs it if nobody waits any more.


class CheckedNetwork(AsyncNetworkBackend):
    """Connects HTTP clients to checked addresses. TLS and the Host header keep the name. Loop only."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        def connect(address: str) -> Awaitable[AsyncNetworkStream]:
            return self._backend.connect_tcp(address, port, timeout or CONNECT_SECONDS, local_address, socket_options)

        return await self._resolver.connect(host, port, connect)
