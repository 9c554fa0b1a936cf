"""Posts messages to webhooks and ntfy, bounded in time and size."""

import asyncio
import base64
import contextlib
import email.utils
import ssl
import time
from collections.abc import Sequence
from functools import cache
from typing import Final

import httpcore2
import httpx2

from streams.deliveries.addresses import CheckedNetwork, Resolver
from streams.deliveries.outcome import Outcome
from topics.ports.alarms import Destination

#: Seconds for a whole attempt, and for the body of an answer whose status is known.
ATTEMPT_SECONDS: Final = 15.0
BODY_SECONDS: Final = 1.0
#: An answer is read so that its connection can be used again, but no further.
MOST_ANSWER_BYTES: Final = 64 * 1024
#: Seconds until idle connections are closed: before servers close them, since a request on a closing one fails.
IDLE_SECONDS: Final = 4.0
#: Statuses that ask to slow down, or say that nobody is behind the door.
BUSY: Final = (429, 502, 503, 504)
MOST_WAIT_SECONDS: Final = 3600.0

UNUSABLE: Final = "its URL, user or password cannot be sent"
#: Errors of a broken connection.
BROKEN: Final = (httpcore2.RemoteProtocolError, httpcore2.ReadError, httpcore2.WriteError)

Headers = Sequence[tuple[bytes, bytes]]


def authorization(destination: Destination) -> Headers:
    """Return the header with the password of a destination, if it has one: a token if it has no user."""
    if destination.password is None:
        return ()
    if destination.user is None:
        return ((b"Authorization", b"Bearer " + destination.password.encode()),)
    both = f"{destination.user}:{destination.password}".encode()
    return ((b"Authorization", b"Basic " + base64.b64encode(both)),)


@cache
def tls() -> ssl.SSLContext:
    """Return the context that trusts what the system trusts. Reading the certificates takes tens of milliseconds."""
    return httpcore2.default_ssl_context()


class Poster:
    """Posts to any URL with a public host. Takes no proxy from the environment and follows no redirect. Loop only."""

    def __init__(self, resolver: Resolver, connections: int) -> None:
        self._network = CheckedNetwork(resolver)
        self._connections = connections
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()

    async def post(self, url: str, headers: Headers, body: bytes) -> Outcome:
        """Post a body, once more if the connection breaks before an answer; every failure becomes an outcome."""
        try:
            target = httpx2.URL(url)
            if target.port is not None and not 0 < target.port < 65536:
                return Outcome(UNUSABLE)
            address = httpcore2.URL(
                scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
            )
            with contextlib.suppress(*BROKEN):
                return await self._post(address, headers, body)
            return await self._post(address, headers, body)
        except Exception as error:
            return _failure(error)

    async def _post(self, address: httpcore2.URL, headers: Headers, body: bytes) -> Outcome:
        answered: Outcome | None = None
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS) as deadline:
                pool = await self._open()
                async with pool.stream("POST", address, headers=headers, content=body) as answer:
                    answered = verdict(answer.status, _wait(answer.headers))
                    soon = asyncio.get_running_loop().time() + BODY_SECONDS
                    deadline.reschedule(min(soon, deadline.when() or soon))
                    size = 0
                    async with contextlib.aclosing(answer.aiter_stream()) as pieces:
                        async for piece in pieces:
                            size += len(piece)
                            if size > MOST_ANSWER_BYTES:
                                break
        except Exception:
            if answered is None:
                raise
        return answered

    async def _open(self) -> httpcore2.AsyncConnectionPool:
        if self._pool is None:
            context = await asyncio.to_thread(tls)
            self._pool = self._pool or httpcore2.AsyncConnectionPool(
                context,
                max_connections=self._connections,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=self._network,
            )
        return self._pool


def verdict(status: int, wait_s: float = 0.0) -> Outcome:
    """Return the outcome of an answer."""
    if 200 <= status < 300:
        return Outcome(status=status)
    if 300 <= status < 400:
        return Outcome(f"it answered {status}: redirects are not followed", status)
    if status == 410:
        return Outcome("it answered 410: it wants no alarms any more", status, gone=True)
    return Outcome(f"it answered {status}", status, away=status in BUSY, wait_s=wait_s)


def _failure(error: Exception) -> Outcome:
    """Return the outcome of an attempt without an answer."""
    if isinstance(error, TimeoutError):
        return Outcome(f"it did not answer within {ATTEMPT_SECONDS:g} s", away=True)
    if isinstance(error, (httpx2.InvalidURL, httpcore2.UnsupportedProtocol, httpcore2.LocalProtocolError)):
        return Outcome(UNUSABLE)
    if isinstance(error, (httpcore2.ConnectError, httpcore2.ConnectTimeout)):
        return Outcome(f"no connection: {error or type(error).__name__}", away=True)
    if isinstance(error, BROKEN):
        return Outcome("the connection ended without an answer by HTTP", away=True)
    if isinstance(error, OSError):
        return Outcome(str(error), away=True)
    raise error


def _wait(headers: Headers) -> float:
    """Return the seconds that `Retry-After` asks for, at most `MOST_WAIT_SECONDS`; 0 if it asks for none."""
    text = next((value.decode("latin-1") for name, value in headers if name.lower() == b"retry-after"), "")
    try:
        seconds = float(text) if text.strip().isdigit() else _until(text)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), MOST_WAIT_SECONDS)


def _until(text: str) -> float:
    """Return the seconds until an HTTP date; raise ValueError if it is none."""
    return email.utils.parsedate_to_datetime(text).timestamp() - time.time()
