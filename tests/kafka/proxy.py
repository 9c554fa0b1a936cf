"""A TCP proxy between a node and the brokers: it holds requests and lets them go later, cuts connections, delays."""

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
#: A broker drops what it has not read when its client closes: so long it is given.
LINGER_SECONDS: Final = 2.0


class Hold(Enum):
    """What is kept back."""

    NOTHING = "nothing"
    #: Produce requests, and on the same connection what comes behind one.
    PRODUCE = "produce requests"
    #: Every request and every answer.
    EVERYTHING = "everything"


class KafkaProxy:
    """One listener for each of `brokers` brokers; `open` tells where they are.

    A request that was read reaches the broker some day, even when the client that sent it is dead by then.
    """

    def __init__(self, brokers: int) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
        self.ports = [int(one.getsockname()[1]) for one in self._sockets]
        #: Requests that were read and not yet passed on.
        self.waiting = 0
        #: Produce requests that named a topic, by its name: those that were read, whether passed on or not.
        self.produced: dict[bytes, int] = {}
        #: Seconds that each request waits.
        self.delay = 0.0
        #: Seconds that the answer to each heartbeat waits, with all later answers on that connection.
        self.late_heartbeats = 0.0
        self._hold = Hold.NOTHING
        #: Connections are counted; those from this number on pass freely.
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
        """Pass on what comes at a port of `ports` to the port that `brokers` has for it."""
        self._thread.start()
        for listener, port in zip(self._sockets, self.ports, strict=True):
            target = brokers[port]
            started = asyncio.start_server(self._taker(target), sock=listener, limit=2**24)
            asyncio.run_coroutine_threadsafe(started, self._loop).result()

    def hold(self, what: Hold, newer: bool = True) -> None:
        """Keep back what comes from now on, on `newer` connections too; `Hold.NOTHING` lets go what was kept."""

        def change() -> None:
            self._hold = what
            self._free_from = math.inf if newer else next(self._connections)
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(change)

    def cut(self) -> None:
        """Close every connection to a client; what was read still reaches the broker."""

        def change() -> None:
            for client in self._clients:
                client.transport.abort()

        self._call(change)

    def wait_for_rows(self, topic: str, seconds: float) -> bool:
        """Return True at the next produce request that names a watched topic, False after `seconds` without one."""
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
        # What is read is ours, without a bound: the client may die, or run into its limit, as on a real network.
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
        """Pass requests on until the client is gone and all are passed on, or the broker is gone."""
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
        """Pass bytes back until the broker closes; a client that is gone does not stop it."""
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
        """Return when a request of connection `number`, or an answer, may pass."""
        while self._hold is Hold.EVERYTHING or (produce and self._hold is Hold.PRODUCE):
            if number >= self._free_from:
                return
            await self._changed.wait()


def _key(request: bytes) -> int:
    """Return what a request asks for, its first two bytes after the size (https://kafka.apache.org/protocol)."""
    return int.from_bytes(request[4:6], "big")
