"""The live socket for asyncio. It is the only one: that of the client that blocks runs it in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from ._async_connection import in_threads, within
from ._calls import Answer
from ._deadline import Deadline
from ._errors import EarshotClientError, ServiceUnreachable
from ._http import CONNECT_LIMIT, READ_LIMIT
from ._media import Frames, Samples, samples
from ._session_values import SessionOptions
from ._socket_state import PROTOCOL, SocketState, SocketWish
from ._socket_values import SocketEvent

#: Seconds between two pings, and until a connection whose pings are not answered counts as broken. A service that is
#: behind may not read for a while.
PING_SECONDS: Final = 20.0
PONG_SECONDS: Final = 40.0
#: Seconds to say goodbye.
CLOSE_SECONDS: Final = 2.0
#: Bytes of one message.
LONGEST_MESSAGE: Final = 1024 * 1024


class AsyncSocket:
    """A live socket for one event loop. Its methods are those of `Socket`, which explains them."""

    def __init__(self, base: httpx2.URL, user_agent: str, wish: SocketWish, timeout: float | None) -> None:
        """`AsyncClient.socket` makes it."""
        self._url = _socket_url(base)
        self._tls = httpx2.create_ssl_context() if base.scheme == "https" else None
        self._user_agent = user_agent
        self._state = SocketState(wish)
        self._deadline = Deadline(timeout)
        self._content_type = wish.session.content_type if isinstance(wish.session, SessionOptions) else ""
        self._frames = Frames(self._content_type)
        self._turn = asyncio.Lock()
        #: Set, and replaced, whenever something has changed.
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._over = False
        #: What ended the socket early, and whether the caller knows it.
        self._failure: Exception | None = None
        self._told = False
        self._cursor = wish.after

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        try:
            await self._until(lambda: self._state.opened or self._over)
            self._check()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._told:
                await self.flush()
        finally:
            await self.close()

    @property
    def session_id(self) -> str:
        """The secret with which the session can be joined again."""
        return self._state.session_id

    @property
    def next_chunk(self) -> int:
        """Every chunk below this number is on the service's disk."""
        return self._state.acknowledged

    @property
    def behind(self) -> float:
        """Seconds of stored audio that waited for analysis at the last acknowledgement."""
        return self._state.behind

    @property
    def cursor(self) -> str | None:
        """The place behind the last event that was yielded, None before the first one."""
        return self._cursor

    async def send(self, audio: Samples, *, timeout: float | None = None) -> None:
        """Send the next piece of the audio."""
        async with self._turn:
            await self._until(lambda: not self._state.is_full or self._over, timeout)
            self._check()
            if data := self._frames.feed(samples(audio, self._content_type)):
                self._state.keep(data)
                self._ring()

    async def end(self) -> None:
        """Say that no more audio comes."""
        self._check()
        self._state.end()
        self._ring()

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent is on the service's disk."""
        await self._until(lambda: self._state.is_stored or self._over, timeout)
        self._check()

    async def stream(self, blocks: Iterable[Samples] | AsyncIterable[Samples]) -> AsyncGenerator[SocketEvent, None]:
        """Send blocks as they come, end the audio where they end, and yield the events meanwhile."""
        failures: list[Exception] = []

        async def feed() -> None:
            try:
                async for block in blocks if isinstance(blocks, AsyncIterable) else in_threads(blocks):
                    await self.send(block)
            except Exception as error:
                failures.append(error)
            with suppress(EarshotClientError):
                await self.end()

        feeding = asyncio.create_task(feed())
        try:
            async for event in self:
                yield event
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        if failures:
            raise failures[0]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SocketEvent:
        """Return the next event."""
        if (event := await self.next_event()) is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, *, timeout: float | None = None) -> SocketEvent | None:
        """Return the next event, None behind the last one."""
        await self._until(lambda: self._state.events or self._over, timeout)
        if not self._state.events:
            self._raise_failure()
            return None
        event = self._state.events.popleft()
        self._cursor = getattr(event, "cursor", None) or self._cursor
        if self._state.caught_up:
            self._ring()
        return event

    async def close(self) -> None:
        """Close the connection, at once. The session stays as it is."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._over = True
        self._ring()

    def _check(self) -> None:
        self._raise_failure()
        if self._closed or self._task is None:
            raise ValueError("the socket is not open")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._told = True
            raise self._failure

    def _ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()

    async def _until(self, ready: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until something holds.

        Raises:
            DeadlineExceeded: it took longer than `timeout` seconds, or than the socket may be open.
        """
        async with within(self._deadline), within(Deadline(timeout)):
            await self._wait(ready)

    async def _wait(self, ready: Callable[[], object]) -> None:
        while not ready():
            await self._bell.wait()

    # --- connections ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect again and again, until the socket is over or cannot go on."""
        try:
            while True:
                await self._connect()
                self._ring()
                if self._state.over:
                    return
                if self._state.waits_for_reader:
                    await self._wait(lambda: self._state.caught_up)
                else:
                    await asyncio.sleep(self._state.pause())
        except Exception as error:
            self._failure = error
        finally:
            self._over = True
            self._ring()

    async def _connect(self) -> None:
        """Make one connection, and stay with it to its end."""
        call = self._state.request()
        try:
            async with connect(
                f"{self._url}{call.path}?{urlencode(call.query)}",
                subprotocols=[Subprotocol(PROTOCOL)],
                additional_headers=call.headers,
                user_agent_header=self._user_agent,
                compression=None,
                open_timeout=CONNECT_LIMIT if self._tls is None else 2 * CONNECT_LIMIT,
                ping_interval=PING_SECONDS,
                ping_timeout=PONG_SECONDS,
                close_timeout=CLOSE_SECONDS,
                max_size=LONGEST_MESSAGE,
                **({} if self._tls is None else {"ssl": self._tls}),
            ) as connection:
                await self._converse(connection)
        except InvalidStatus as error:
            response = error.response
            self._state.refused(Answer(response.status_code, bytes(response.body or b"")))
        except (OSError, EOFError, WebSocketException) as error:
            self._state.broken(str(error) or type(error).__name__)

    async def _converse(self, connection: ClientConnection) -> None:
        beside = [
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._leave_to_catch_up(connection)),
        ]
        try:
            await self._read(connection)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if self._state.caught_up:
            self._state.left()
        else:
            self._state.closed(connection.close_code or 1006, connection.close_reason or "")

    async def _read(self, connection: ClientConnection) -> None:
        limit: float | None = READ_LIMIT  # of the first message
        with suppress(ConnectionClosed):
            while True:
                async with asyncio.timeout(limit):
                    text = await connection.recv(decode=False)
                self._state.received(text)
                self._ring()
                limit = None

    async def _write(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # The reader finds out why.
            while True:
                if (message := self._state.next_to_send()) is None:
                    await self._bell.wait()
                else:
                    await connection.send(message)

    async def _leave_to_catch_up(self, connection: ClientConnection) -> None:
        """Break the connection off once events that were missed can come again on the next one."""
        await self._wait(lambda: self._state.caught_up)
        connection.transport.abort()


def _socket_url(base: httpx2.URL) -> str:
    if base.scheme not in ("http", "https"):
        raise ServiceUnreachable(f"{base} is no URL of a service: it begins with http:// or https://")
    scheme = "wss" if base.scheme == "https" else "ws"
    return f"{scheme}://{base.netloc.decode('ascii')}{base.path.rstrip('/')}"
