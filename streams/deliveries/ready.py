"""The alarms that are in memory to be delivered: a few for each destination; all others wait in rows."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Final

import msgspec
import structlog
from faust import App

from streams.channel import WorkChannel
from streams.deliveries.outcome import Outcome
from topics.alarms.alarms import Alarm, Delivery

log = structlog.get_logger(__name__)

#: Attempts at a time: of a node, and of one destination. One project has at most half of what others leave.
CONCURRENCY: Final = 64
EACH: Final = 4
#: Alarms of one destination in memory that wait for an attempt.
MOST_WAITING: Final = 32
#: After so many attempts in a row without an answer a destination rests, for so many seconds, which double with each.
AWAY: Final = 3
FIRST_REST: Final = 1.0
LONGEST_REST: Final = 60.0
#: Seconds after which a destination without alarms is forgotten.
FORGET: Final = 600.0
#: Seconds of failures alone after which the log names a destination.
LOGGED_SECONDS: Final = 10.0


class Pending(msgspec.Struct, frozen=True):
    """An alarm on its way to one destination."""

    alarm: Alarm
    delivery: Delivery

    @property
    def key(self) -> tuple[str, int]:
        return self.alarm.session, self.alarm.sequence


class _Lane:
    """One destination: its alarms in memory, and how it does. Loop only."""

    def __init__(self) -> None:
        self.waiting: deque[Pending] = deque()
        self.running = 0
        #: Alarms that wait or run.
        self.known: set[tuple[str, int]] = set()
        #: Failures in a row: all, and those without an answer; when they began, and whether the log says so.
        self.failures = self.away = 0
        self.since = 0.0
        self.is_logged = False
        self.rests_until = 0.0
        #: Whether it may have due alarms that are in rows only.
        self.has_more = False

    @property
    def limit(self) -> int:
        """Attempts at a time: one finds out whether a destination that failed is back."""
        return 1 if self.failures else EACH

    def is_busy(self, now: float) -> bool:
        """Return whether it needs no further alarms."""
        tries = self.failures > 0 and self.running > 0
        return now < self.rests_until or tries or len(self.waiting) > MOST_WAITING // 2


class ReadyDeliveries(WorkChannel[Pending]):
    """Gives the actors alarms to deliver; destinations take turns. Loop only.

    A destination that is away rests: its alarms leave memory, and when the rest is over, one of them tries it.
    """

    actors: Final = CONCURRENCY

    def __init__(self, app: App, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(app)
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}
        #: Destinations with waiting alarms, in turn.
        self._turns: dict[str, None] = {}
        #: Attempts of now by project.
        self._running: Counter[str] = Counter()
        #: Set when more alarms of rows are needed.
        self.hungry = asyncio.Event()

    def add(self, pending: Pending) -> None:
        """Take an alarm to deliver, unless its destination has enough, or rests: then its row keeps it."""
        id = pending.delivery.destination
        lane = self._lanes.setdefault(id, _Lane())
        if pending.key in lane.known:
            return
        if len(lane.waiting) >= MOST_WAITING or self._clock() < lane.rests_until:
            lane.has_more = True
            return
        lane.waiting.append(pending)
        lane.known.add(pending.key)
        self._turns[id] = None
        self.wake()

    def take(self) -> Pending | None:
        """Return an alarm whose turn it is; call `done` for it afterwards."""
        for id in self._turns:
            lane = self._lanes[id]
            project = lane.waiting[0].alarm.project
            if lane.running < lane.limit and self._running[project] < CONCURRENCY - self._running.total():
                del self._turns[id]
                pending = lane.waiting.popleft()
                lane.running += 1
                self._running[project] += 1
                if lane.waiting:
                    self._turns[id] = None
                return pending
        return None

    def done(self, pending: Pending, outcome: Outcome | None) -> None:
        """Note that an attempt has ended; None if none was made."""
        id = pending.delivery.destination
        lane = self._lanes[id]
        lane.running -= 1
        lane.known.discard(pending.key)
        self._running[pending.alarm.project] -= 1
        self._running += Counter()  # Forgets projects without attempts.
        if outcome is not None and outcome.error is None:
            if lane.is_logged:
                log.info("delivery.works", destination=id, failures=lane.failures)
            lane.failures, lane.away, lane.is_logged, lane.rests_until = 0, 0, False, 0.0
        elif outcome is not None:
            now = self._clock()
            lane.since = lane.since if lane.failures else now
            lane.failures += 1
            lane.away = lane.away + 1 if outcome.away else 0
            if not lane.is_logged and now - lane.since >= LOGGED_SECONDS:
                log.warning("delivery.failing", destination=id, error=outcome.error)
                lane.is_logged = True
            if outcome.away and (lane.away >= AWAY or outcome.wait_s):
                self.rest(id, outcome.wait_s)
        if lane.has_more and not lane.is_busy(self._clock()):
            self.hungry.set()
        for _ in range(lane.limit):
            self.wake()

    def rest(self, id: str, least: float = 0.0) -> None:
        """Try a destination again after a pause, of at least some seconds."""
        lane = self._lanes[id]
        pause = min(LONGEST_REST, FIRST_REST * 2.0 ** min(max(lane.away - AWAY, 0), 16))
        lane.rests_until = self._clock() + max(pause, least)
        for waiting in lane.waiting:
            lane.known.discard(waiting.key)
        lane.waiting.clear()
        self._turns.pop(id, None)

    def is_back(self, id: str) -> None:
        """End the rest of a destination that is known to be back."""
        if (lane := self._lanes.get(id)) is not None:
            lane.rests_until = 0.0
            self.hungry.set()

    def refill(self) -> Collection[str]:
        """Return the destinations that need no alarms from rows now; the caller adds alarms of all others."""
        now = self._clock()
        for id in [id for id, lane in self._lanes.items() if not lane.known and now > lane.rests_until + FORGET]:
            del self._lanes[id]
        busy = set()
        for id, lane in self._lanes.items():
            if lane.is_busy(now):
                busy.add(id)
            else:
                lane.has_more = False
        return busy
