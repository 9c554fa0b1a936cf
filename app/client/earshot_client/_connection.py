"""The blocking client's connection: runs flows and job streams over httpx2."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import TIMEOUT_MAX, Timer
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from ._calls import Answer, Call, Flow, Items, NoAnswer, Pause, Step, Work
from ._deadline import Deadline
from ._event_stream import E, EventStream
from ._http import answer, check_open, limits, multipart, no_answer, upload_headers
from ._job_stream import JobStream
from ._job_values import JobResult
from ._keys import checked_headers
from ._window_values import Event

if TYPE_CHECKING:
    from ._socket import Socket
    from ._socket_state import SocketRequest

T = TypeVar("T")


class Connection:
    """A pool of connections to one service. Threads may share it."""

    def __init__(
        self, url: str, user_agent: str, transport: httpx2.BaseTransport | None, sleep: Callable[[float], None]
    ) -> None:
        self._http = httpx2.Client(
            base_url=url, headers=checked_headers({"User-Agent": user_agent}), transport=transport
        )
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def run(self, flow: Flow[T], timeout: float | None) -> T:
        """Run all steps of a flow and return its result.

        Raises:
            DeadlineExceeded: it took longer than `timeout` seconds.
            EarshotClientError, OSError: the flow's errors.
        """
        steps = self._pages(flow, Deadline(timeout))
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result

    def items(self, flow: Flow[None], timeout: float | None) -> Iterator[Any]:
        """Run all steps of a flow and yield the items of its pages. It raises the errors of `run`."""
        for page in self._pages(flow, Deadline(timeout)):
            yield from page.items

    def socket(self, wanted: SocketRequest, timeout: float | None) -> Socket:
        """Return a live socket, which connects on entry."""
        check_open(self._http)
        # Imported here: most programs open no socket.
        from ._async_socket import AsyncSocket
        from ._socket import Socket

        return Socket(AsyncSocket(self._http.base_url, self._http.headers["User-Agent"], wanted, timeout))

    def stream(self, wanted: SocketRequest, blocks: Iterable[bytes], timeout: float | None) -> Iterator[Event]:
        """Send blocks over a socket and yield windows meanwhile. It raises the socket's errors."""
        with self.socket(wanted, timeout) as socket:
            try:
                for event in socket.stream(blocks):
                    if isinstance(event, Event):
                        yield event
            except GeneratorExit:
                socket.end()

    def server_events(self, stream: EventStream[E], timeout: float | None) -> Iterator[E]:
        """Yield the events of a stream, reconnecting whenever it breaks off.

        Raises:
            DeadlineExceeded: it took longer than `timeout` seconds.
            EarshotClientError: the stream's errors.
        """
        deadline = Deadline(timeout)
        while not stream.ended():
            try:
                with self._response(stream.request(), deadline) as response:
                    if response.status_code == 200:
                        for data in response.iter_bytes():
                            deadline.left()
                            yield from stream.feed(data)
                            if stream.ended():
                                return
                    else:
                        response.read()
                        stream.refused(answer(response))
            except httpx2.RequestError as error:
                stream.disconnected(_no_answer(error, deadline).reason)
            self._pause(stream.pause(), deadline)

    def job_result(self, stream: JobStream, timeout: float | None) -> JobResult:
        """Wait for the last event of a job and return its results. It raises the errors of `server_events`."""
        for event in self.server_events(stream, timeout):
            last = event
        return last.result

    def _pages(self, flow: Flow[T], deadline: Deadline) -> Generator[Items, None, T]:
        """Run all steps of a flow, yield its pages and return its result."""
        reply: object = None
        with closing(flow):
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                if isinstance(step, Items):
                    yield step
                reply = self._result(step, deadline)

    def _result(self, step: Step, deadline: Deadline) -> object:
        match step:
            case Call():
                return self._answer(step, deadline)
            case Work():
                deadline.left()
                return step.function()
            case Pause():
                self._pause(step.seconds, deadline)
        return None

    def _pause(self, seconds: float, deadline: Deadline) -> None:
        left = deadline.left()
        self._sleep(seconds if left is None else min(seconds, left))

    def _answer(self, call: Call, deadline: Deadline) -> Answer | NoAnswer:
        try:
            with self._response(call, deadline) as response:
                response.read()
        except httpx2.RequestError as error:
            return _no_answer(error, deadline)
        deadline.left()
        return answer(response)

    @contextmanager
    def _response(self, call: Call, deadline: Deadline) -> Iterator[httpx2.Response]:
        """Yield the response to a call, with its body unread. The connection ends with the deadline."""
        check_open(self._http)
        headers = checked_headers(call.headers)
        content: bytes | Iterable[bytes] = call.body
        if call.upload:
            request = multipart(call.upload)
            headers |= upload_headers(request)
            content = _pieces(request, deadline)
        with (
            self._http.stream(
                call.method,
                call.path,
                params=call.query,
                headers=headers,
                content=content,
                timeout=limits(call, deadline.left()),
            ) as response,
            _shut_down_at(deadline, response),
        ):
            yield response


def _no_answer(error: httpx2.RequestError, deadline: Deadline) -> NoAnswer:
    """Return a failed request as a value, unless the deadline ended it."""
    deadline.left()
    reply = no_answer(error)
    deadline.reason = reply.reason
    return reply


def _pieces(request: httpx2.Request, deadline: Deadline) -> Iterator[bytes]:
    assert isinstance(request.stream, httpx2.SyncByteStream)
    for piece in request.stream:
        deadline.left()
        yield piece


@contextmanager
def _shut_down_at(deadline: Deadline, response: httpx2.Response) -> Iterator[None]:
    """Shut down the socket of a response when the deadline passes.

    The timeouts of httpx2 apply to single reads, so an answer that trickles in would never reach them.
    """
    left = deadline.left()
    stream = response.extensions.get("network_stream")
    if left is None or stream is None:
        yield
        return
    timer = Timer(min(left, TIMEOUT_MAX), _shut_down, (stream.get_extra_info("socket"),))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(connected: socket.socket) -> None:
    with suppress(OSError):  # it may be closed already
        # The method of an SSL socket would take the TLS state from the reading thread.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
