"""The live socket of the client that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from ._async_socket import AsyncSocket
from ._media import Samples
from ._socket_state import SocketWish
from ._socket_values import SocketEvent

T = TypeVar("T")


class Socket:
    """A live socket: the audio of a session in, and its events out, over as many connections as it takes.

    >>> with client.socket() as socket:
    ...     for event in socket.stream(blocks_of_a_microphone):
    ...         print(event)

    Entering it connects. One thread may send while another one iterates over the events.

    What is sent is kept until it is on the service's disk, and sent again after a break under the same number; events
    go on behind the last one that came. So nothing is lost or doubled, whether the connection is cut, the service
    starts again, or the session moves to another node. Where 16 MiB are kept, `send` waits. Events that nobody reads
    are not kept, but asked for again.

    Leaving the block without an error waits until everything that was sent is stored. The session stays open, except
    after `end`; by its id it can be joined again.

    Errors: a method raises what has ended the socket, once the events before it have been yielded.

    - SessionFailed: the audio cannot be analysed.
    - SessionClosed: the session was made readonly, and not everything that was sent is stored.
    - SessionNotFound: the session never existed, was deleted or has expired.
    - SocketReplaced: another socket sends for the session now.
    - WrongSequence: another program sends chunks to the session, too.
    - WrongKey: the service does not know the key, or it has ended meanwhile.
    - QuotaExceeded: the plan is used up.
    - ServiceUnreachable, ServiceBusy: there was no connection for too long.
    - RequestRefused: any other refusal.
    - DeadlineExceeded: the `timeout` of the socket passed.
    """

    def __init__(self, base: httpx2.URL, user_agent: str, wish: SocketWish, timeout: float | None) -> None:
        """`Client.socket` makes it."""
        self._socket = AsyncSocket(base, user_agent, wish, timeout)
        # A socket has to read, answer pings and connect again while its caller does other things. So it is written
        # once, for a loop, and has one of its own here.
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="earshot-socket", daemon=True)
        #: Held while something is given to the loop, so that nothing comes behind its end.
        self._gate = Lock()
        self._runs = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs = True
        try:
            self._call(self._socket.__aenter__)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._runs:
                self._call(self._socket.__aexit__, kind, error, trace)
        finally:
            self._stop()

    @property
    def session_id(self) -> str:
        """The secret with which the session can be joined again."""
        return self._socket.session_id

    @property
    def next_chunk(self) -> int:
        """Every chunk below this number is on the service's disk."""
        return self._socket.next_chunk

    @property
    def behind(self) -> float:
        """Seconds of stored audio that waited for analysis at the last acknowledgement."""
        return self._socket.behind

    @property
    def cursor(self) -> str | None:
        """The place behind the last event that was yielded, with which another socket goes on."""
        return self._socket.cursor

    def send(self, audio: Samples, *, timeout: float | None = None) -> None:
        """Send the next piece of the audio. It returns at once, unless 16 MiB wait for their acknowledgement.

        Args:
            audio: bytes, or an array of the samples that the content type of a new session names; half a second is
                best, and at most 1 MiB. Raw PCM of a new session may be cut anywhere; of other audio each piece must be
                decodable alone.
            timeout: seconds to wait for room; no limit by default. Nothing was sent when it passes.

        Raises:
            DeadlineExceeded: there was no room in time.
            SessionClosed: `end` was called, or the session takes no more audio.
            TypeError: it is an array of other samples.
            ValueError: the socket is closed, or only listens.
            EarshotClientError: what has ended the socket.
        """
        self._call(self._socket.send, audio, timeout=timeout)

    def end(self) -> None:
        """Say that no more audio comes; the session becomes readonly behind what was sent. It returns at once.

        Raises:
            ValueError: the socket is closed, or only listens.
            EarshotClientError: what has ended the socket.
        """
        self._call(self._socket.end)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything that was sent is on the service's disk, after `end` also that no more comes.

        Args:
            timeout: seconds to wait; no limit by default.

        Raises:
            DeadlineExceeded: it took longer.
            EarshotClientError: what has ended the socket.
        """
        self._call(self._socket.flush, timeout=timeout)

    def stream(self, blocks: Iterable[Samples]) -> Iterator[SocketEvent]:
        """Send blocks beside the caller as they come, end the audio where they end, and yield the events meanwhile.

        Where the caller stops reading no more blocks are sent, and the session stays open.

        Raises:
            SessionClosed: the session took no more audio before the blocks ended.
            EarshotClientError: what has ended the socket.
            Exception: what the iterator of the blocks raises, once all events have been yielded.
        """
        events, turn = self._socket.stream(blocks), asyncio.Lock()

        async def following() -> SocketEvent | None:
            async with turn:
                return await anext(events, None)

        async def finish() -> None:
            async with turn:  # Ctrl-C may just have cancelled the other one.
                await events.aclose()

        try:
            while (event := self._call(following)) is not None:
                yield event
        finally:
            if self._runs:
                self._call(finish)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SocketEvent:
        """Return the next event."""
        if (event := self.next_event()) is None:
            raise StopIteration
        return event

    def next_event(self, *, timeout: float | None = None) -> SocketEvent | None:
        """Return the next event, None behind the last one.

        Args:
            timeout: seconds to wait; no limit by default.

        Raises:
            DeadlineExceeded: there was none in time.
            EarshotClientError: what has ended the socket.
        """
        return self._call(self._socket.next_event, timeout=timeout)

    def close(self) -> None:
        """Close the connection, at once. The session stays as it is, and what was not stored is dropped."""
        if self._runs:
            self._call(self._socket.close)
        self._stop()

    def _call(self, method: Callable[..., Coroutine[Any, Any, T]], *arguments: object, **options: object) -> T:
        """Run a method on the loop, and wait for it."""
        with self._gate:
            if not self._runs:
                raise ValueError("the socket is not open")
            future = asyncio.run_coroutine_threadsafe(method(*arguments, **options), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        """End the loop once those who wait for it have their answers; allowed twice, and from several threads."""

        async def settle() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others)

        with self._gate:
            if not self._runs:
                return
            self._runs = False
            settling = asyncio.run_coroutine_threadsafe(settle(), self._loop)
        settling.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
