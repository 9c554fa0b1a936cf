"""The live socket for asyncio. The blocking client's socket runs it in a thread."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import Final, Self
from urllib.parse import urlencode

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from ._deadline import Deadline, within
from ._errors import EarshotClientError, ServiceUnreachable
from ._http import CONNECT_LIMIT, NO_URL, READ_LIMIT, answer_of
from ._socket_state import PROTOCOL, SocketRequest, SocketState
from ._socket_values import SocketEvent, SourceEvent
from ._times import Time
from ._uploads import Audio, pieces

#: Seconds between two pings, and seconds without a pong after which the connection counts as broken. A service that is
#: behind may not read for a while.
PING_SECONDS: Final = 20.0
PONG_SECONDS: Final = 40.0
#: Seconds for the closing handshake.
CLOSE_SECONDS: Final = 2.0
#: Seconds for the source of a stream to end, or to give more audio, after the session has ended.
SOURCE_SECONDS: Final = 5.0
#: The code for a broken connection.
CUT: Final = 1006
NOT_OPEN: Final = "the socket is not open"


class AsyncSocket:
    """A live socket for one event loop, with the methods of `Socket`, which explains them."""

    def __init__(self, base: httpx2.URL, user_agent: str, wanted: SocketRequest, timeout: float | None) -> None:
        """Made by `AsyncClient.socket`."""
        self._url = _socket_url(base)
        self._tls = httpx2.create_ssl_context() if base.scheme == "https" else None
        self._user_agent = user_agent
        self._state = SocketState(wanted)
        self._deadline = Deadline(timeout)
        #: Set and replaced whenever something has changed.
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._connection: ClientConnection | None = None
        self._over = self._closed = False
        #: The error that ended the socket early, and the error of `stream`'s audio, raised after the last event.
        self._failure: Exception | None = None
        self._audio_failure: Exception | None = None
        #: `stream` sends audio.
        self._feeding = False
        self._failure_raised = False
        #: The cursor after the last event that was yielded; `after` before the first one.
        self.cursor = wanted.after

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._run()))
        try:
            await self._until(lambda: self._state.opened or self._over)
            self._check()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None and not self._closed and not self._failure_raised:
                self._closed = True
                await self._until(lambda: self._state.is_stored or self._over)
                self._raise(self._failure)
        finally:
            await self.close()
            self._tasks.clear()

    @property
    def session_id(self) -> str:
        """The secret for joining the session again."""
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
    def warning(self) -> str | None:
        """Why the service left something out, the last time."""
        return self._state.warning

    async def send(self, data: bytes, captured: Time | None = None, spooled: bool = False) -> None:
        """Send the next piece of the audio."""
        await self._until(lambda: not self._state.is_full or self._over)
        self._check()
        for chunk in self._state.frames.feed(data, self._state.frame_bytes):
            self._state.keep(chunk, captured, spooled)
            captured = None
            self._notify()

    async def source(
        self, event: SourceEvent, reason: str | None = None, at: Time | None = None, spooled: bool = False
    ) -> None:
        """Tell what happened to the source of the audio."""
        at = datetime.now(UTC) if at is None else at
        await self._until(lambda: not self._state.is_full or self._over)
        self._check()
        self._state.note(event, reason, at, spooled)
        self._notify()

    async def end(self) -> None:
        """Announce that no more audio comes."""
        self._check()
        self._state.end()
        self._notify()

    def stream(self, audio: Audio | Iterable[bytes] | AsyncIterable[bytes]) -> Self:
        """Send audio in the background, end the session after it, and return the events."""
        self._check()
        self._feeding = True
        self._tasks.append(asyncio.create_task(self._feed(audio)))
        return self

    async def _feed(self, audio: Audio | Iterable[bytes] | AsyncIterable[bytes]) -> None:
        try:
            async for block in audio if isinstance(audio, AsyncIterable) else _in_threads(pieces(audio)):
                await self.send(block)
        except Exception as error:
            await self.finish(error)
        else:
            await self.finish(None)

    async def finish(self, failure: Exception | None) -> None:
        """End the audio of a stream, which may have failed."""
        self._audio_failure, self._feeding = failure, False
        self._notify()
        with suppress(EarshotClientError, ValueError):  # The events report what ended the socket.
            await self.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SocketEvent:
        self._check_entered()
        await self._until(lambda: self._state.events or self._over)
        if not self._state.events:
            if self._feeding and self._failure is None:
                await self._end_of_audio()
            self._raise(self._failure or self._audio_failure)
            raise StopAsyncIteration
        event = self._state.events.popleft()
        self.cursor = getattr(event, "cursor", self.cursor)
        if self._state.behind_reader:
            # A new connection brings the missed events.
            if self._connection is not None:
                self._connection.transport.abort()
            self._notify()
        return event

    async def _end_of_audio(self) -> None:
        """Wait until the source of a stream says whether it has more audio, which the session does not take."""
        giving_up = asyncio.get_running_loop().call_later(SOURCE_SECONDS, self._give_up)
        try:
            await self._until(lambda: not self._feeding or self._closed)
        finally:
            giving_up.cancel()

    def _give_up(self) -> None:
        self._audio_failure, self._feeding = self._state.failure(), False
        self._notify()

    async def close(self) -> None:
        """Close the connection at once."""
        self._closed = self._over = True
        self._notify()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self) -> None:
        """Note that `stream` begins; raise the error that ended the socket, or ValueError if it is not open."""
        self._check()
        self._feeding = True

    def _check(self) -> None:
        self._raise(self._failure)
        if self._closed:
            raise ValueError(NOT_OPEN)
        self._check_entered()

    def _check_entered(self) -> None:
        if not self._tasks:
            raise ValueError(NOT_OPEN)

    def _raise(self, failure: Exception | None) -> None:
        if failure is not None:
            self._failure_raised = True
            raise failure

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, ready: Callable[[], object]) -> None:
        """Wait until `ready()` is true.

        Raises:
            DeadlineExceeded: the socket's `timeout` passed.
        """
        async with within(self._deadline):
            while not ready():
                await self._changed.wait()

    # --- connections ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Reconnect until the socket is over or cannot go on."""
        state = self._state
        try:
            while not state.over:
                await self._connect()
                self._notify()
                while state.waits_for_reader and state.events:
                    await self._changed.wait()
                if not (state.over or state.behind_reader):
                    await asyncio.sleep(state.pause())
        except Exception as error:
            self._failure = error
        finally:
            self._over = True
            self._notify()

    async def _connect(self) -> None:
        """Make one connection and use it until it ends."""
        call = self._state.request()
        try:
            async with _Connect(
                f"{self._url}{call.path}?{urlencode(call.query)}",
                subprotocols=[Subprotocol(PROTOCOL)],
                additional_headers=call.headers,
                user_agent_header=self._user_agent,
                compression=None,
                open_timeout=2 * CONNECT_LIMIT,
                ping_interval=PING_SECONDS,
                ping_timeout=PONG_SECONDS,
                close_timeout=CLOSE_SECONDS,
                ssl=self._tls,
            ) as self._connection:
                await self._converse(self._connection)
        except InvalidStatus as error:
            response = error.response
            self._state.refused(answer_of(response.status_code, bytes(response.body or b""), response.headers))
        except (OSError, EOFError, WebSocketException) as error:
            self._state.broken(ServiceUnreachable(str(error) or type(error).__name__))
        except asyncio.CancelledError:
            # A second cancellation, for example at Ctrl-C, breaks off the closing handshake.
            if self._connection is not None:
                self._connection.transport.abort()
            raise

    async def _converse(self, connection: ClientConnection) -> None:
        writing = asyncio.create_task(self._write(connection))
        try:
            with suppress(ConnectionClosed):
                async with asyncio.timeout(READ_LIMIT):
                    self._state.received(await connection.recv(decode=False))
                while True:
                    self._notify()
                    self._state.received(await connection.recv(decode=False))
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        code = connection.close_code or CUT
        if code != CUT or not self._state.behind_reader:  # Otherwise we cut it ourselves.
            self._state.closed(code, connection.close_reason or "")

    async def _write(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # The reader finds the cause.
            while True:
                if (message := self._state.next_to_send()) is None:
                    await self._changed.wait()
                else:
                    await connection.send(message)


class _Connect(connect):
    """Follows no redirection: it would send the key to another server."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


async def _in_threads(blocks: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the items of an iterator that may block.

    Nobody joins its threads, and they take no place of the loop's own, because a microphone may block forever.
    """
    loop, iterator = asyncio.get_running_loop(), iter(blocks)
    while True:
        taken: asyncio.Future[bytes | None] = loop.create_future()
        Thread(target=_take, args=(iterator, taken, loop), name="earshot-audio", daemon=True).start()
        if (block := await taken) is None:
            return
        yield block


def _take(iterator: Iterator[bytes], taken: asyncio.Future[bytes | None], loop: asyncio.AbstractEventLoop) -> None:
    settle: Callable[[], None]
    try:
        settle = partial(taken.set_result, next(iterator, None))
    except Exception as error:
        settle = partial(taken.set_exception, error)
    with suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(lambda: None if taken.done() else settle())


def _socket_url(base: httpx2.URL) -> str:
    if base.scheme not in ("http", "https"):
        raise ServiceUnreachable(NO_URL.format(base))
    return f"{base.copy_with(scheme=base.scheme.replace('http', 'ws'))}".rstrip("/")
