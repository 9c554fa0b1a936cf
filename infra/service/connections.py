"""Connections of clients: how many there may be, and when one has taken too long or sent too much."""

import asyncio
from collections import Counter
from typing import Final, Protocol

import msgspec
import structlog

from app.http.addresses import customer

log = structlog.get_logger(__name__)

#: Seconds between checks for late connections.
LOOK_SECONDS: Final = 1.0
#: Connections that are checked, and perhaps pinged, before others get their turn.
LOOKS: Final = 32
#: Seconds between lines in the log about refusals.
REPORT_SECONDS: Final = 60.0


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How much of a node clients may use before they have shown a key."""

    #: Connections in all, and from one address; None for any number.
    connections: int
    per_address: int | None
    #: Seconds that a request, or a client that takes its answer, may be silent.
    idle_seconds: float
    #: Bytes a second below which a body is not waited for, once its idle time is used up.
    slowest: int
    #: Reverse proxies whose X-Forwarded-For says where a request came from.
    trusted_proxies: int = 0


class Guarded(Protocol):
    """A connection, as these checks see it."""

    address: str

    def look(self, now: float) -> None:
        """End what is late."""


class Connections:
    """All connections of a node."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        #: Time of the last look, in seconds: clock enough for deadlines, and free. It stands while this process does.
        self.now = 0.0
        #: Connections that were refused or ended, by the reason.
        self.refused: Counter[str] = Counter()
        self._all: set[Guarded] = set()
        self._by_address: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: Guarded) -> bool:
        """Take a new connection, if there is room for it."""
        limits, whose = self.limits, customer(connection.address)
        if len(self._all) >= limits.connections:
            self.refused["too many connections"] += 1
            return False
        if limits.per_address is not None and self._by_address[whose] >= limits.per_address:
            self.refused["too many connections of one address"] += 1
            return False
        self._all.add(connection)
        self._by_address[whose] += 1
        return True

    def leave(self, connection: Guarded) -> None:
        """Forget a closed connection; allowed for one that was not admitted."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        whose = customer(connection.address)
        self._by_address[whose] -= 1
        if not self._by_address[whose]:
            del self._by_address[whose]

    async def watch(self) -> None:
        """Check all connections regularly; report refusals in the log now and then."""
        loop = asyncio.get_running_loop()
        looked, reported = loop.time(), self.now
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, looked = looked, loop.time()
            # A client that was not read for longer because this process stood still is not late.
            self.now += min(looked - before, 2 * LOOK_SECONDS)
            for number, connection in enumerate(list(self._all), 1):
                if connection in self._all:
                    connection.look(self.now)
                if number % LOOKS == 0:
                    await asyncio.sleep(0)
            if self.now - reported >= REPORT_SECONDS:
                reported = self.now
                self.report()

    def report(self) -> None:
        """Log the refusals since the last report."""
        news = self.refused - self._reported
        if news:
            log.warning("connections.refused", connections=len(self._all), reasons=dict(news))
            self._reported = self.refused.copy()
