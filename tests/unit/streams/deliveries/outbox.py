"""Alarms in memory, destinations that change, and senders that do as a test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from streams.agents import NodeApp, deliver_alarms
from streams.deliveries.deliverer import Deliverer
from streams.deliveries.outcome import Outcome
from tests.unit.streams.agents import Agents
from tests.unit.streams.deliveries.alarms import alarm, destination
from topics.alarms.alarms import Alarm, Delivery
from topics.errors import DirectoryDown, EarshotError
from topics.ports.alarms import Destination

#: Attempts after 0, 5 and 300 s.
RETRIES = (0.0, 5.0, 300.0)


class FakeOutbox:
    """Implements `topics.ports.alarms.Outbox`; the clock stands still."""

    def __init__(self) -> None:
        self.alarms: dict[tuple[str, int], Alarm] = {}
        self.now = 1_780_000_100_000
        self.made: Callable[[Alarm], None] = lambda alarm: None
        #: Errors of the next calls of `note`.
        self.errors: list[EarshotError] = []
        self.noted: list[tuple[tuple[str, int], Delivery]] = []
        #: The most that one look returned.
        self.most = 0

    def subscribe(self, made: Callable[[Alarm], None]) -> None:
        self.made = made

    def store(self, *alarms: Alarm) -> None:
        self.alarms.update({(one.session, one.sequence): one for one in alarms})

    def make(self, *alarms: Alarm) -> None:
        self.store(*alarms)
        for one in alarms:
            self.made(one)

    def due(self, until_ms: int, count: int, busy: Collection[str] = ()) -> Sequence[Alarm]:
        found, counts = [], Counter[str]()
        for one in self.alarms.values():
            ids = [to.destination for to in one.pending if to.at <= until_ms and to.destination not in busy]
            if any(counts[id] < count for id in ids):
                counts.update(ids)
                found.append(one)
        self.most = max(self.most, len(found))
        return found

    def waiting(self, most: int) -> int:
        return min(most, self.states()["pending"])

    def now_ms(self, session: str) -> int:
        return self.now

    async def note(self, session: str, sequence: int, delivery: Delivery) -> Alarm | None:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        one = self.alarms[session, sequence]
        others = [to for to in one.deliveries if to.destination != delivery.destination]
        changed = msgspec.structs.replace(one, deliveries=(*others, delivery))
        self.alarms[session, sequence] = changed
        self.noted.append(((session, sequence), delivery))
        return changed

    def states(self) -> Counter[str]:
        return Counter(to.state for one in self.alarms.values() for to in one.deliveries)


class FakeDestinations:
    """Implements `topics.ports.alarms.Destinations`."""

    def __init__(self, *known: Destination) -> None:
        self.known = {one.id: one for one in known}
        self.off: dict[str, str] = {}
        self.down = False

    async def find(self, id: str) -> Destination | None:
        if self.down:
            raise DirectoryDown("the database does not answer")
        return self.known.get(id)

    async def brokers(self) -> Sequence[Destination]:
        return [one for one in self.known.values() if one.kind == "mqtt" and one.enabled]

    async def switch_off(self, id: str, fault: str) -> None:
        self.off[id] = fault
        self.known[id] = msgspec.structs.replace(self.known[id], enabled=False, fault=fault)


class FakeSender:
    """Answers each attempt by `answer`, and counts."""

    def __init__(self, answer: Callable[[Destination, Alarm], Awaitable[Outcome] | Outcome] | None = None) -> None:
        self.answer = answer or (lambda destination, alarm: Outcome(status=200))
        self.sent: list[tuple[str, int]] = []
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def send(self, destination: Destination, alarm: Alarm) -> Outcome:
        self.sent.append((destination.id, alarm.sequence))
        self.now[destination.id] += 1
        self.most[destination.id] = max(self.most[destination.id], self.now[destination.id])
        try:
            outcome = self.answer(destination, alarm)
            return outcome if isinstance(outcome, Outcome) else await outcome
        finally:
            self.now[destination.id] -= 1


class Scene:
    """A deliverer with its agent, on fakes; in its context it looks for alarms that are due."""

    def __init__(self, sender: FakeSender | None = None, *destinations: Destination, **changes: Any) -> None:
        self.outbox = FakeOutbox()
        self.destinations = FakeDestinations(*(destinations or (destination("http://receiver.example/"),)))
        self.sender = sender or FakeSender()
        app = NodeApp()
        self.deliverer = Deliverer(
            app,
            self.outbox,
            self.destinations,
            dict.fromkeys(("webhook", "ntfy", "mqtt"), self.sender),
            changes.pop("retries", RETRIES),
            lambda: self.outbox.now,
        )
        deliver_alarms(app, self.deliverer)
        self.agents = Agents(app)
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Scene:
        await self.agents.start()
        self._looking = asyncio.create_task(self.deliverer.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._looking is not None
        self._looking.cancel()
        await asyncio.gather(self._looking, self.agents.stop(), return_exceptions=True)
        assert not self.agents.crashes

    def delivery(self, sequence: int = 3) -> Delivery:
        (one,) = (
            to for (_, number), found in self.outbox.alarms.items() if number == sequence for to in found.deliveries
        )
        return one


def many(count: int, *destinations: str) -> Iterable[Alarm]:
    for sequence in range(count):
        yield alarm(sequence=sequence, deliveries=tuple(Delivery(id) for id in destinations or ("hook",)))
