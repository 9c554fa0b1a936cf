"""Limits the number of client connections, and ends those that take too long or send too much."""

import asyncio
import math
import ssl
from collections import Counter
from functools import cached_property
from typing import Final, Protocol

import msgspec
import structlog

from app.http.addresses import customer
from app.http.turns import LoopTurns
from app.senders import SenderOf
from infra.transport.entrance import Entrance
from infra.transport.lanes import Lanes
from topics.tally import OwnTally, Tally
from topics.turns import Holder

log = structlog.get_logger(__name__)

#: Seconds between checks of a connection, and how many are checked at once.
POLL_SECONDS: Final = 1.0
TOGETHER: Final = 64
#: Bytes a second that all connections together discard of requests that are answered already.
DISCARD_RATE: Final = 128 * 1024 * 1024
#: Bytes of HTTP input that wait for their turn at most; more are handled at once, and then count as bodies.
HELD_BYTES: Final = 8 * 1024 * 1024
#: Seconds between log lines about refusals.
REPORT_SECONDS: Final = 60.0


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How much of a node clients may use before they have shown a key."""

    #: Connections in all, and from one address; None means unlimited.
    connections: int
    per_address: int | None
    #: Seconds that a request may be silent, or that an answer may stay unread.
    idle_seconds: float
    #: Slowest rate of a body in bytes a second, once its idle time is used up.
    slowest: int
    #: Number of reverse proxies whose X-Forwarded-For is trusted.
    trusted_proxies: int = 0


class Guarded(Protocol):
    """A connection that `Connections` checks."""

    address: str

    def check(self, now: float) -> None:
        """End whatever is late."""


class Connections:
    """Admits, counts and checks the client connections of a node."""

    def __init__(self, limits: ConnectionLimits, tally: Tally | None = None) -> None:
        """Admit connections within limits; `tally` has those of other lanes too."""
        self.limits = limits
        #: The other lanes of this machine, if there are any.
        self.lanes: Lanes | None = None
        #: Whom to trust among other nodes that use TLS.
        self.trust: ssl.SSLContext | None = None
        self.turns = LoopTurns()
        self.entrance = Entrance(lambda: self.turns)
        #: Identifies the sender of a request by its ASGI scope.
        self.sender: SenderOf = lambda scope: Holder("", "")
        #: Bytes of HTTP input that wait for their turn.
        self.held = 0
        #: Seconds at the last check: free. It stops while this process stands still.
        self.now = 0.0
        #: The most seconds by which a check came too late, because the loop did something else: lately, and before.
        self._late = self._late_before = 0.0
        self._looked = math.inf
        #: Refused or ended connections, by reason.
        self.refused: Counter[str] = Counter()
        self._all: set[Guarded] = set()
        #: Connections in all, and by address.
        self._tally = tally or OwnTally()
        self._reported: Counter[str] = Counter()
        #: Loop time at which the next piece may be discarded.
        self._discarded = 0.0

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: Guarded) -> bool:
        """Register a new connection if there is room; return False otherwise."""
        limits, whose = self.limits, customer(connection.address)
        if self._tally.total(()) >= limits.connections:
            self.refused["too many connections"] += 1
            return False
        if limits.per_address is not None and self._tally.total((whose,)) >= limits.per_address:
            self.refused["too many connections of one address"] += 1
            return False
        self._all.add(connection)
        self._count(whose, 1)
        return True

    def leave(self, connection: Guarded) -> None:
        """Remove a closed connection; allowed if it was not admitted."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._count(customer(connection.address), -1)

    def _count(self, whose: str, number: int) -> None:
        self._tally.add((), number)
        if self.limits.per_address is not None:
            self._tally.add((whose,), number)

    def discard(self, size: int) -> float:
        """Return the seconds for which a connection must not be read, after it has discarded `size` bytes.

        Others get their turn meanwhile: discarding is quick, but clients can send without end.
        """
        now = self._loop.time()
        self._discarded = max(self._discarded, now) + size / DISCARD_RATE
        return self._discarded - now

    @property
    def loop_delay(self) -> float:
        """The most seconds by which the event loop was late, of the last `REPORT_SECONDS` at least."""
        return max(self._late, self._late_before)

    def precise_now(self) -> float:
        """Return `now` without the delay of the next check."""
        # A client is not late if this process stood still and did not read it.
        return self.now + max(0.0, min(self._loop.time() - self._looked, 2 * POLL_SECONDS))

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def watch(self) -> None:
        """Check all connections regularly; log refusals now and then.

        The checks run in small groups spread over the second: checking ten thousand at once would delay all requests.
        """
        self._looked, reported = self._loop.time(), self.now
        waiting: list[Guarded] = []
        while True:
            pause = POLL_SECONDS / max(1, -(-len(self._all) // TOGETHER))
            await asyncio.sleep(pause)
            self._late = max(self._late, self._loop.time() - self._looked - pause)
            self.now, self._looked = self.precise_now(), self._loop.time()
            waiting = waiting or list(self._all)
            for connection in waiting[-TOGETHER:]:
                if connection in self._all:
                    connection.check(self.now)
            del waiting[-TOGETHER:]
            if self.now - reported >= REPORT_SECONDS:
                reported = self.now
                self._late, self._late_before = 0.0, self._late
                self.report()

    def report(self) -> None:
        news = self.refused - self._reported
        if news:
            log.warning("connections.refused", connections=len(self._all), reasons=dict(news))
            self._reported = self.refused.copy()
