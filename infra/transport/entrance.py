"""Reads the connections that carry live chunks: together at each tick of the clock while many are live, else at once.

What is read together goes through the service as one wave: one group of the log, one message to each worker, one
group of rows and one wake of the readers, each begun when the one before has ended. So only the entrance waits.
"""

import asyncio
import os
from collections.abc import Callable
from select import EPOLLIN, EPOLLONESHOT, epoll
from typing import Final

from app.http.turns import LoopTurns
from topics.clock import TICK, until_tick
from topics.turns import Holder

#: A client that sends so many seconds after an answer has waited for it: at a tick, or nearly.
EAGER_SECONDS: Final = 1.25 * TICK
#: Seconds between two ticks of such clients, because they lose what they wait.
EAGER_TICK: Final = TICK / 4
#: A gate opens at ticks only while more chunks than these come in a tick, counted over some ticks.
OPENS_AT: Final = 1.5
COUNTED: Final = 10
#: Bytes read of a connection at a time: the most, the least, and what all connections of a gate may have at once. What
#: was read and waits for its turn counts as its project's, and thousands of connections may come at once.
READ_BYTES: Final = 256 * 1024
LEAST_BYTES: Final = 4 * 1024
GATE_BYTES: Final = 16 * 1024 * 1024
_ONCE: Final = EPOLLIN | EPOLLONESHOT


class Entrance:
    """Reads connections, each at the turn of its holder. Loop only."""

    def __init__(self, turns: Callable[[], LoopTurns]) -> None:
        self.live, self.eager, self.rest = Gate(TICK, turns), Gate(EAGER_TICK, turns), Gate(0.0, turns)


class Gate:
    """Connections that wait for input, with one descriptor for all, so that none of them wakes the loop by itself."""

    def __init__(self, tick: float, turns: Callable[[], LoopTurns]) -> None:
        """Open each `tick` seconds while many send; always, if it is 0."""
        self._tick = tick
        self._turns = turns
        self._ready = epoll()
        self._entries: dict[int, Entry] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = self._ticks = False
        #: Since when chunks are counted, their number, and the connections that sent them.
        self._since, self._count = 0.0, 0
        self._senders: set[int] = set()

    @property
    def read_bytes(self) -> int:
        """How much to read of a connection."""
        return min(READ_BYTES, max(LEAST_BYTES, GATE_BYTES // max(1, len(self._entries))))

    def wait(self, entry: "Entry") -> None:
        """Let an entry read once, when something has come."""
        if entry.number in self._entries:
            self._ready.modify(entry.number, _ONCE)
            return
        self._ready.register(entry.number, _ONCE)
        self._entries[entry.number] = entry
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._watch()

    def leave(self, entry: "Entry") -> None:
        del self._entries[entry.number]
        self._ready.unregister(entry.number)

    def _watch(self) -> None:
        assert self._loop is not None
        self._watched = True
        self._loop.add_reader(self._ready.fileno(), self._open)

    def _open(self) -> None:
        assert self._loop is not None
        ready, now = [number for number, _ in self._ready.poll(0)], self._loop.time()
        self._count_chunks(ready, now)
        if self._ticks and ready:
            if self._watched:
                self._watched = False
                self._loop.remove_reader(self._ready.fileno())
            self._loop.call_later(until_tick(now, self._tick), self._open)
        elif not self._watched:
            self._watch()
        turns = self._turns()
        for number in ready:
            if (entry := self._entries.get(number)) is not None:
                entry.is_due = True
                turns.do(entry.holder, entry.read)

    def _count_chunks(self, ready: list[int], now: float) -> None:
        """Decide every few ticks how to go on. A client that waits for answers sends only one chunk to a tick."""
        self._count += len(ready)
        self._senders.update(ready)
        if (past := now - self._since) >= COUNTED * self._tick > 0:
            self._ticks = min(len(self._senders), self._count * self._tick / past) > OPENS_AT
            self._since, self._count = now, 0
            self._senders.clear()


class Entry:
    """The input of one connection, read here while its transport is paused. Loop only."""

    def __init__(
        self,
        entrance: Entrance,
        transport: asyncio.Transport,
        received: Callable[[bytes], None],
        holder: Holder,
    ) -> None:
        """Pass input to `received`; if that fails, the connection ends."""
        self.number: int = transport.get_extra_info("socket").fileno()
        self.holder = holder
        self._entrance = entrance
        self._transport = transport
        self._received: Callable[[bytes], None] | None = received
        self._loop = asyncio.get_running_loop()
        self._gate: Gate | None = None
        self._reads = False
        #: Whether input has come whose turn has not.
        self.is_due = False
        #: Whether the client sent its last input as soon as it was answered, and when it was answered last.
        self._is_eager = False
        self._answered = -EAGER_SECONDS
        transport.pause_reading()

    def answered(self) -> None:
        self._answered = self._loop.time()

    def wait(self, *, is_inside: bool) -> None:
        """Read once something comes. Nobody gains if a message waits inside of which the client `is_inside`."""
        entrance = self._entrance
        gate = entrance.rest if is_inside else entrance.eager if self._is_eager else entrance.live
        if gate is not self._gate:
            if self._gate is not None:
                self._gate.leave(self)
            self._gate = gate
        self._reads = True
        gate.wait(self)

    def pause(self) -> None:
        """Read nothing until the next `wait`."""
        self._reads = False

    def close(self) -> None:
        """Read nothing any more. Call it before the descriptor is closed."""
        if self._gate is not None:
            self._gate.leave(self)
            self._gate = None
        self._reads, self._received = False, None  # It refers to the connection, which refers to this.

    def read(self) -> None:
        self.is_due = False
        if not self._reads or self._received is None or self._transport.is_closing():
            return
        self._reads = False
        if self._gate is not self._entrance.rest:
            self._is_eager = self._loop.time() - self._answered < EAGER_SECONDS
        size = READ_BYTES if self._gate is None else self._gate.read_bytes
        try:
            data = os.read(self.number, size)
        except BlockingIOError:
            self.wait(is_inside=True)
            return
        except OSError:
            data = b""
        if not data:
            self._transport.resume_reading()  # It tells its protocol of the end.
            return
        try:
            self._received(data)
        except Exception as error:  # As a transport does, so that the others are read.
            self._transport.abort()
            fault = {"message": "a connection failed", "exception": error, "transport": self._transport}
            self._loop.call_exception_handler(fault)
