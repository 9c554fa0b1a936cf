"""The live socket of the blocking client."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from threading import Thread
from types import TracebackType
from typing import Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ._async_socket import NOT_OPEN, AsyncSocket
from ._socket_values import SocketEvent, SourceEvent
from ._times import Time
from ._uploads import Audio, pieces

T = TypeVar("T")


class Socket:
    """A live socket: audio of a session in, its events out, over as many connections as necessary.

    >>> with client.socket() as socket:
    ...     for event in socket.stream(microphone):
    ...         print(event)

    Entering it connects. Threads may share it: one may send while another iterates over the events.

    The socket keeps what you send until it is on the service's disk, and sends it again after a break under the same
    number. Events resume after the last one received. So nothing is lost or doubled if the connection breaks, the
    service restarts, or the session moves to another node. `send` waits while 16 MiB are kept. Events that nobody reads
    are not kept, but requested again.

    Leaving the block without an error waits until everything sent is stored. The session stays open, except after
    `end`. It can be joined again by its id.

    Errors: methods raise the error that ended the socket; iterating yields the events before it first.

    - SessionFailed: the audio cannot be analysed.
    - SessionClosed: the session was made readonly before all chunks were stored.
    - SessionNotFound: the session never existed, was deleted or has expired.
    - SocketReplaced: another socket sends for the session now.
    - WrongSequence: another program sends chunks to the session, too.
    - WrongKey: the service does not know the key, or it has ended meanwhile.
    - QuotaExceeded: the plan is used up.
    - ServiceUnreachable, ServiceBusy: there was no connection for too long.
    - RequestRefused: any other refusal.
    - DeadlineExceeded: the `timeout` of the socket passed.
    - ValueError: the socket is closed, or it only listens.
    """

    _portal: BlockingPortal

    def __init__(self, socket: AsyncSocket) -> None:
        """Made by `Client.socket`."""
        # The socket reads and reconnects while its caller does other things, so it runs on a loop.
        self._socket = socket
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._portal = self._stack.enter_context(start_blocking_portal(name="earshot-socket"))
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._socket))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def session_id(self) -> str:
        """The secret for joining the session again."""
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
        """The cursor after the last event that was yielded, where another socket can resume."""
        return self._socket.cursor

    @property
    def warning(self) -> str | None:
        """Why the service left something out, the last time; it is logged, too."""
        return self._socket.warning

    def send(self, data: bytes, captured: Time | None = None, spooled: bool = False) -> None:
        """Send the next piece of the audio. It returns at once, unless 16 MiB wait for their acknowledgement.

        Args:
            data: half a second is best, and at most 1 MiB. Raw PCM may be cut anywhere, and so may the audio of a
                session of the kind `file`. Other pieces must be decodable alone.
            captured: when its first sample was captured; raw PCM only. Later pieces are taken to follow it without a
                pause. The service leaves out a time that is more than an hour off its clock.
            spooled: the audio waited for the service, so `captured` may be up to 7 days ago.
        """
        self._call(self._socket.send, data, captured, spooled)

    def source(
        self, event: SourceEvent, reason: str | None = None, at: Time | None = None, spooled: bool = False
    ) -> None:
        """Tell what happened to the source of a stream, after the audio that was sent before.

        Args:
            event: `source.lost`, `source.back` or `source.silent`.
            reason: for people; at most 200 characters in one line.
            at: when; by default now.
            spooled: as for `send`.
        """
        self._call(self._socket.source, event, reason, at, spooled)

    def end(self) -> None:
        """Announce that no more audio comes: the session becomes readonly after what was sent. It returns at once."""
        self._call(self._socket.end)

    def stream(self, audio: Audio | Iterable[bytes]) -> Self:
        """Send audio in the background, end the session after it, and return the events, which come meanwhile.

        Errors of the audio are raised after the last event. Sending stops when the socket is left.

        Args:
            audio: an iterator of pieces as for `send`; or a path, bytes, or a file or pipe open for reading bytes. Not
                `sys.stdin.buffer`: Python aborts at Ctrl-C while a thread reads it. Use
                `open(0, "rb", buffering=0, closefd=False)`.
        """
        self._call(self._socket.begin)
        Thread(target=self._feed, args=(audio,), name="earshot-audio", daemon=True).start()
        return self

    def _feed(self, audio: Audio | Iterable[bytes]) -> None:
        """Send audio. Nobody joins this thread, because a microphone may block forever."""
        failure = None
        try:
            for piece in pieces(audio):
                self.send(piece)
        except Exception as error:
            failure = error
        with suppress(ValueError):  # The socket was left.
            self._call(self._socket.finish, failure)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SocketEvent:
        try:
            return self._call(self._socket.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Close the connection at once. The session stays as it is; audio that was not stored is dropped."""
        with suppress(ValueError):  # It was left.
            self._call(self._socket.close)

    def _call(self, method: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run a method on the loop, and wait for it."""
        try:
            future = self._portal.start_task_soon(method, *arguments)
        except (AttributeError, RuntimeError):
            raise ValueError(NOT_OPEN) from None
        try:
            return future.result()
        except BaseException:
            future.cancel()  # For example at Ctrl-C: an event would be lost.
            raise
