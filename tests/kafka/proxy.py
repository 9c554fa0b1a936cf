"""A TCP proxy between a node and the brokers: it holds requests and delivers them later, cuts connections, delays."""

import asyncio
import contextlib
import itertools
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final, Self

PRODUCE: Final = 0
HEARTBEAT: Final = 12
#: A broker discards unread requests when its client closes, so wait this long.
LINGER_SECONDS: Final = 2.0


class Hold(Enum):
    NOTHING = "nothing"
    #: Produce requests, and everything after one on the same connection.
    PRODUCE = "produce requests"
    #: Every request and every answer.
    EVERYTHING = "everything"


class KafkaProxy:
    """One listener for each of `brokers` brokers; `open` sets their ports.

    A request that was read eventually reaches the broker, even if its client has died.
    """

    def __init__(self, brokers: int) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
        self.ports = [int(one.getsockname()[1]) for one in self._sockets]
        #: Requests that were read and not yet forwarded.
        self.waiting = 0
        #: Produce requests read per topic name, forwarded or not.
        self.produced: dict[bytes, int] = {}
        #: Seconds that each request waits.
        self.delay = 0.0
        #: Seconds that heartbeat answers, and all later answers on that connection, are delayed.
        self.late_heartbeats = 0.0
        self._hold = Hold.NOTHING
        #: Connections are numbered; those from this number on pass freely.
        self._free_from = math.inf
        self._connections = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def bootstrap(self) -> str:
        """`host:port` of each listener, joined by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def watch(self, topic: str) -> None:
        self.produced[topic.encode()] = 0

    def open(self, brokers: Mapping[int, int]) -> None:
        """Forward each port of `ports` to its port in `brokers`."""
        self._thread.start()
        for listener, port in zip(self._sockets, self.ports, strict=True):
            target = brokers[port]
            started = asyncio.start_server(self._taker(target), sock=listener, limit=2**24)
            asyncio.run_coroutine_threadsafe(started, self._loop).result()

    def hold(self, what: Hold, newer: bool = True) -> None:
        """Hold future traffic, including that of `newer` connections; `Hold.NOTHING` releases what was held."""

        def change() -> None:
            self._hold = what
            self._free_from = math.inf if newer else next(self._connections)
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(change)

    def cut(self) -> None:
        """Close every client connection; requests already read still reach the broker."""

        def change() -> None:
            for client in self._clients:
                client.transport.abort()

        self._call(change)

    def wait_for_rows(self, topic: str, seconds: float) -> bool:
        """Return True at the next produce request that names a watched topic; False after `seconds` without one."""
        seen, deadline = self.produced[topic.encode()], time.monotonic() + seconds
        while self.produced[topic.encode()] == seen and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.produced[topic.encode()] > seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()

    def _call(self, what: Callable[[], object]) -> None:
        async def called() -> None:
            what()

        asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    # --- a connection -----------------------------------------------------------------------------------------------

    def _taker(self, target: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def take(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
            self._spawn(self._serve(reader, client, target))

        return take

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, target: int) -> None:
        self._clients.add(client)
        number = next(self._connections)
        try:
            answers, broker = await asyncio.open_connection("127.0.0.1", target, limit=2**24)
        except OSError:
            client.transport.abort()
            self._clients.discard(client)
            return
        # Requests are buffered without a bound: the client may die or time out, as on a real network.
        requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        beats = asyncio.Event()
        back = self._spawn(self._answers(answers, client, number, beats))
        back.add_done_callback(lambda _: requests.put_nowait(None))
        reading = self._spawn(self._read(reader, requests, beats))
        try:
            await self._pass_on(requests, broker, back, number)
        finally:
            self._clients.discard(client)
            self.waiting -= sum(request is not None for request in requests._queue)  # type: ignore[attr-defined]
            for task in (back, reading):
                task.cancel()
            for writer in (client, broker):
                writer.transport.abort()

    async def _read(
        self, reader: asyncio.StreamReader, requests: asyncio.Queue[bytes | None], beats: asyncio.Event
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = await reader.readexactly(4)
                request = size + await reader.readexactly(struct.unpack(">i", size)[0])
                self.waiting += 1
                requests.put_nowait(request)
                if _key(request) == PRODUCE:
                    for topic in self.produced:
                        self.produced[topic] += topic in request
                elif _key(request) == HEARTBEAT:
                    beats.set()
        requests.put_nowait(None)

    async def _pass_on(
        self, requests: asyncio.Queue[bytes | None], broker: asyncio.StreamWriter, back: asyncio.Task[None], number: int
    ) -> None:
        """Forward requests until the client is gone and all are forwarded, or the broker is gone."""
        while (request := await requests.get()) is not None and not back.done():
            await self._let_go(_key(request) == PRODUCE, number)
            if self.delay:
                await asyncio.sleep(self.delay)
            self.waiting -= 1
            with contextlib.suppress(OSError):
                broker.write(request)
                await broker.drain()
        # A client that is gone needs no answer, but its last requests need time.
        await asyncio.wait({back}, timeout=LINGER_SECONDS)

    async def _answers(
        self, answers: asyncio.StreamReader, client: asyncio.StreamWriter, number: int, beats: asyncio.Event
    ) -> None:
        """Return bytes to the client until the broker closes, even if the client is gone."""
        gone = False
        with contextlib.suppress(OSError):
            while part := await answers.read(2**16):
                await self._let_go(False, number)
                if self.late_heartbeats and beats.is_set():
                    await asyncio.sleep(self.late_heartbeats)
                if gone or client.transport.is_closing():
                    continue
                try:
                    client.write(part)
                    await client.drain()
                except OSError:
                    gone = True

    async def _let_go(self, produce: bool, number: int) -> None:
        """Return when a request or answer of connection `number` may pass."""
        while self._hold is Hold.EVERYTHING or (produce and self._hold is Hold.PRODUCE):
            if number >= self._free_from:
                return
            await self._changed.wait()


def _key(request: bytes) -> int:
    """Return the API key of a request, its first two bytes after the size (https://kafka.apache.org/protocol)."""
    return int.from_bytes(request[4:6], "big")
