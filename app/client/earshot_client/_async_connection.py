"""The asyncio client's connection: runs flows and job streams over httpx2, and reads files in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from ._calls import Answer, Call, Flow, Items, NoAnswer, Pause, Step, Work
from ._deadline import Deadline, within
from ._event_stream import E, EventStream
from ._http import answer, check_open, limits, multipart, no_answer, upload_headers
from ._job_stream import JobStream
from ._job_values import JobResult
from ._keys import checked_headers
from ._window_values import Event

if TYPE_CHECKING:
    from ._async_socket import AsyncSocket
    from ._socket_state import SocketRequest

T = TypeVar("T")


class AsyncConnection:
    """A pool of connections to one service, for the tasks of one event loop."""

    def __init__(
        self,
        url: str,
        user_agent: str,
        transport: httpx2.AsyncBaseTransport | None,
        sleep: Callable[[float], Awaitable[None]] | None,
    ) -> None:
        self._http = httpx2.AsyncClient(
            base_url=url, headers=checked_headers({"User-Agent": user_agent}), transport=transport
        )
        self._sleep = sleep or asyncio.sleep

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self, flow: Flow[T], timeout: float | None) -> T:
        """Run all steps of a flow and return its result.

        Raises:
            DeadlineExceeded: it took longer than `timeout` seconds.
            EarshotClientError, OSError: the flow's errors.
        """
        deadline = Deadline(timeout)
        reply: object = None
        with closing(flow):
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                reply = await self._result(step, deadline)

    async def items(self, flow: Flow[None], timeout: float | None) -> AsyncGenerator[Any, None]:
        """Run all steps of a flow and yield the items of its pages. It raises the errors of `run`."""
        deadline = Deadline(timeout)
        reply: object = None
        with closing(flow):
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration:
                    return
                if isinstance(step, Items):
                    for item in step.items:
                        yield item
                reply = await self._result(step, deadline)

    def socket(self, wanted: SocketRequest, timeout: float | None) -> AsyncSocket:
        """Return a live socket, which connects on entry."""
        check_open(self._http)
        # Imported here: most programs open no socket.
        from ._async_socket import AsyncSocket

        return AsyncSocket(self._http.base_url, self._http.headers["User-Agent"], wanted, timeout)

    async def stream(
        self, wanted: SocketRequest, blocks: Iterable[bytes] | AsyncIterable[bytes], timeout: float | None
    ) -> AsyncGenerator[Event, None]:
        """Send blocks over a socket and yield windows meanwhile. It raises the socket's errors."""
        async with self.socket(wanted, timeout) as socket:
            try:
                async for event in socket.stream(blocks):
                    if isinstance(event, Event):
                        yield event
            except GeneratorExit:
                await socket.end()

    async def server_events(self, stream: EventStream[E], timeout: float | None) -> AsyncGenerator[E, None]:
        """Yield the events of a stream, reconnecting whenever it breaks off.

        Raises:
            DeadlineExceeded: it took longer than `timeout` seconds.
            EarshotClientError: the stream's errors.
        """
        deadline = Deadline(timeout)
        while not stream.ended():
            try:
                async with within(deadline):
                    response = await self._send(stream.request())
                async with aclosing(response):
                    if response.status_code == 200:
                        async for data in _bytes(response, deadline):
                            for event in stream.feed(data):
                                yield event
                            if stream.ended():
                                return
                    else:
                        async with within(deadline):
                            await response.aread()
                        stream.refused(answer(response))
            except httpx2.RequestError as error:
                deadline.reason = no_answer(error).reason
                stream.disconnected(deadline.reason)
            await self._result(Pause(stream.pause()), deadline)

    async def job_result(self, stream: JobStream, timeout: float | None) -> JobResult:
        """Wait for the last event of a job and return its results. It raises the errors of `server_events`."""
        async for event in self.server_events(stream, timeout):
            last = event
        return last.result

    async def _result(self, step: Step, deadline: Deadline) -> object:
        # No step contains a `yield`: a timeout there would cancel the caller's own work.
        async with within(deadline):
            match step:
                case Call():
                    reply = await self._answer(step)
                    if isinstance(reply, NoAnswer):
                        deadline.reason = reply.reason
                    return reply
                case Work():
                    return await asyncio.to_thread(step.function)
                case Pause():
                    await self._sleep(step.seconds)
        return None

    async def _answer(self, call: Call) -> Answer | NoAnswer:
        try:
            response = await self._send(call)
            async with aclosing(response):
                await response.aread()
        except httpx2.RequestError as error:
            return no_answer(error)
        return answer(response)

    async def _send(self, call: Call) -> httpx2.Response:
        """Return the response to a call, with its body unread."""
        check_open(self._http)
        headers = checked_headers(call.headers)
        content: bytes | AsyncIterator[bytes] = call.body
        if call.upload:
            request = await asyncio.to_thread(multipart, call.upload)
            headers |= upload_headers(request)
            content = _pieces(request)
        request = self._http.build_request(
            call.method, call.path, params=call.query, headers=headers, content=content, timeout=limits(call)
        )
        return await self._http.send(request, stream=True)


async def _pieces(request: httpx2.Request) -> AsyncGenerator[bytes, None]:
    """Yield the body of an upload. Each piece of the file is read in a thread."""
    assert isinstance(request.stream, httpx2.SyncByteStream)
    pieces = iter(request.stream)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


async def _bytes(response: httpx2.Response, deadline: Deadline) -> AsyncGenerator[bytes, None]:
    async with aclosing(response.aiter_bytes()) as blocks:
        while True:
            async with within(deadline):
                data = await anext(blocks, None)
            if data is None:
                return
            yield data
