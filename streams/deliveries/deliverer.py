"""Delivers alarms: attempts by a schedule, each noted in the alarm's row, at least one success or a failure by name."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Final, Protocol

import msgspec
import structlog
from faust import App

from streams.deliveries.options import MOST_SECONDS
from streams.deliveries.outcome import Outcome
from streams.deliveries.ready import MOST_WAITING, Pending, ReadyDeliveries
from streams.folding import retry
from topics.alarms.alarms import Alarm, Delivery
from topics.errors import EarshotError, NotOwned, Unavailable
from topics.ports.alarms import Destination, Destinations, Outbox
from topics.ports.health import Reading
from topics.times import DAY_MS

log = structlog.get_logger(__name__)

#: Seconds between two looks for alarms that are due, and the least of it while a destination has more of them.
LOOK_SECONDS: Final = 1.0
REFILL_SECONDS: Final = 0.02
#: Alarms of a destination in one look: more than are in memory, so that some of them are new.
LOOKED: Final = 2 * MOST_WAITING
#: Retries are spread by so much, so that those of an outage do not come together.
JITTER: Final = 0.1
#: Days after which an alarm fails without a further attempt, as its destination was away; its row ends after seven.
MOST_DAYS: Final = 4
#: Labels of the metric; the destination may be removed.
KINDS: Final = ("webhook", "ntfy", "mqtt", "removed")
ENDS: Final = ("delivered", "retried", "failed")
#: Seconds of an attempt of any kind: a broker may be slow at each of many messages.
MOST_ATTEMPT_SECONDS: Final = 60.0
#: Deliveries that the metric counts: so many keep the loop for 3 ms.
MOST_COUNTED: Final = 10_000


class Sender(Protocol):
    """Sends alarms to destinations of one kind. Loop only."""

    async def send(self, destination: Destination, alarm: Alarm) -> Outcome:
        """Return what came of one attempt; raise nothing for what a destination does."""


class Deliverer:
    """Delivers the alarms of a node; an agent calls it. Loop only."""

    def __init__(
        self,
        app: App,
        outbox: Outbox,
        destinations: Destinations,
        senders: Mapping[str, Sender],
        retries: tuple[float, ...],
        now_ms: Callable[[], int],
    ) -> None:
        """Wait `retries` (seconds) before each attempt; `now_ms` is the time of the log."""
        self.ready = ReadyDeliveries(app)
        self._outbox = outbox
        self._destinations = destinations
        self._senders = senders
        self._retries = retries
        self._now_ms = now_ms
        self._counts: Counter[tuple[str, str]] = Counter(dict.fromkeys(product(KINDS, ENDS), 0))
        outbox.subscribe(self._made)

    async def run(self) -> None:
        """Look for alarms that are due, until cancelled."""
        while True:
            with suppress(EarshotError):  # The next look finds them.
                self._add(self._outbox.due(self._now_ms(), LOOKED, self.ready.refill()))
            await asyncio.sleep(REFILL_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.ready.hungry.wait()
            self.ready.hungry.clear()

    async def deliver(self, pending: Pending) -> None:
        """Attempt a delivery, and note what came of it in the alarm's row."""
        outcome = None
        try:
            destination = await self._destinations.find(pending.delivery.destination)
            error = self._cannot(pending, destination)
            if destination is None or error is not None:
                after = await self._note(pending, lambda now_ms: _failed(pending.delivery, now_ms, error))
            else:
                sent = outcome = await attempt(self._senders, destination, pending.alarm)
                if sent.gone and sent.error is not None:
                    await self._destinations.switch_off(destination.id, sent.error)
                after = await self._note(pending, lambda now_ms: self._after(pending.delivery, now_ms, sent))
            kind = "removed" if destination is None else destination.kind
            self._counts[kind, "retried" if after.state == "pending" else after.state] += 1
        except NotOwned:
            pass  # The new owner of the partition delivers it.
        except Exception as error:
            if not isinstance(error, EarshotError):
                log.error("delivery.broken", destination=pending.delivery.destination, exc_info=error)
            self.ready.rest(pending.delivery.destination)
        finally:
            self.ready.done(pending, outcome)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of deliveries."""
        help = "Attempts to deliver alarms, by kind of destination and outcome; a failed one is not retried."
        for (kind, outcome), count in self._counts.items():
            yield Reading("earshot_alarm_deliveries_total", help, count, {"kind": kind, "outcome": outcome})
        now_ms = self._now_ms()
        # Also those whose retry is not due yet; no schedule is longer.
        oldest, waiting = now_ms, 0
        with suppress(EarshotError):
            waiting = self._outbox.waiting(MOST_COUNTED)
            oldest = min((one.made_at for one in self._outbox.due(now_ms + MOST_SECONDS * 1000, 1)), default=now_ms)
        help = f"Deliveries of alarms that wait, for their first attempt or for another one; at most {MOST_COUNTED}."
        yield Reading("earshot_alarm_deliveries_waiting", help, waiting)
        yield Reading(
            "earshot_alarm_oldest_seconds",
            "Age of the next alarm that is not delivered.",
            max(0, now_ms - oldest) / 1000,
        )

    def _made(self, alarm: Alarm) -> None:
        self._add((alarm,))

    def _add(self, alarms: Iterable[Alarm]) -> None:
        now_ms = self._now_ms()
        for alarm in alarms:
            for delivery in alarm.pending:
                if delivery.at <= now_ms:
                    self.ready.add(Pending(alarm, delivery))

    def _cannot(self, pending: Pending, destination: Destination | None) -> str | None:
        """Return why a delivery fails without an attempt, None if it does not."""
        if destination is None or destination.project != pending.alarm.project:
            return "the destination was removed"
        if not destination.enabled:
            return f"the destination is switched off: {destination.fault or 'by hand'}"
        waited_ms = self._outbox.now_ms(pending.alarm.session) - (pending.delivery.at or pending.alarm.made_at)
        return f"the destination was away for {MOST_DAYS} days" if waited_ms > MOST_DAYS * DAY_MS else None

    def _after(self, before: Delivery, now_ms: int, outcome: Outcome) -> Delivery:
        """Return the state of a delivery after an attempt."""
        attempts, what = before.attempts + 1, (outcome.status, outcome.error)
        if outcome.error is None:
            return Delivery(before.destination, "delivered", attempts, now_ms, *what)
        if outcome.gone or attempts >= len(self._retries):
            return Delivery(before.destination, "failed", attempts, now_ms, *what)
        pause = max(self._retries[attempts] * random.uniform(1 - JITTER, 1 + JITTER), outcome.wait_s)
        return Delivery(before.destination, "pending", attempts, now_ms + round(pause * 1000), *what)

    async def _note(self, pending: Pending, after: Callable[[int], Delivery]) -> Delivery:
        """Store a state, and return it. The actor waits until it can be noted: nothing is sent twice meanwhile."""
        failures = 0
        while True:
            try:
                delivery = after(self._outbox.now_ms(pending.alarm.session))
                await self._outbox.note(*pending.key, delivery)
                return delivery
            except NotOwned:
                raise
            except Unavailable:
                failures += 1
                await asyncio.sleep(retry.pause(failures))


def _failed(before: Delivery, now_ms: int, error: str | None) -> Delivery:
    return msgspec.structs.replace(before, state="failed", at=now_ms, status=None, error=error)


async def attempt(senders: Mapping[str, Sender], destination: Destination, alarm: Alarm) -> Outcome:
    """Return what came of one attempt."""
    try:
        async with asyncio.timeout(MOST_ATTEMPT_SECONDS):
            return await senders[destination.kind].send(destination, alarm)
    except TimeoutError:
        return Outcome(f"it took longer than {MOST_ATTEMPT_SECONDS:g} s", away=True)
    except Exception as error:  # A fault of ours, which ends no agent.
        log.error("delivery.broken", destination=destination.id, kind=destination.kind, exc_info=error)
        return Outcome("the service failed to send it")
