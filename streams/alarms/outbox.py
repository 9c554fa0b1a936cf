"""The alarms of a node: who hears about new ones, what is due, and what becomes of them."""

import asyncio
import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice
from typing import Final, Protocol

import msgspec
import structlog

from streams.alarms.alarm_rows import AlarmRows
from streams.folding import retry
from streams.folding.head_store import PartitionTable
from streams.folding.presence import Presence
from topics.alarms.alarms import Alarm, Delivery
from topics.errors import Damaged, RecordError, Unavailable
from topics.ports.alarms import AlarmQuery

log = structlog.get_logger(__name__)

#: Steps of a long search before other tasks run.
TOGETHER: Final = 64
#: Seconds until a change must be in the changelog.
LOGGED_SECONDS: Final = 4.5


class Store(Protocol):
    """The sessions of a partition, as `streams.sessions.store` has them."""

    partition: PartitionTable
    presence: Presence

    @property
    def alarms(self) -> AlarmRows: ...


class AlarmOutbox:
    """Implements `topics.ports.alarms.Outbox` and `Alarms` on the partitions of a node. Loop only."""

    def __init__(
        self,
        serving: Callable[[str], Store],
        all_serving: Callable[[], Sequence[Store]],
        for_reading: Callable[[str], Store],
        all_for_reading: Callable[[], Sequence[Store]],
    ) -> None:
        """The functions return stores of sessions, and raise Unavailable if there is none."""
        self._serving, self._all_serving = serving, all_serving
        self._for_reading, self._all_for_reading = for_reading, all_for_reading
        self._subscribers: list[Callable[[Alarm], None]] = []
        self._followers: list[Callable[[Alarm], None]] = []

    # --- deliveries -------------------------------------------------------------------------------------------------

    def subscribe(self, made: Callable[[Alarm], None]) -> None:
        self._subscribers.append(made)

    def follow(self, changed: Callable[[Alarm], None]) -> None:
        """Call `changed` with each alarm that is made or changes here."""
        self._followers.append(changed)

    def announce(self, alarms: Sequence[Alarm]) -> None:
        """Tell everybody of new alarms, and of those that are sent again."""
        self._offer(alarms)
        for alarm in alarms:
            self._show(alarm)

    def _offer(self, alarms: Iterable[Alarm]) -> None:
        for alarm in alarms:
            for made in self._subscribers:
                made(alarm)

    def _show(self, alarm: Alarm) -> Alarm:
        for changed in self._followers:
            changed(alarm)
        return alarm

    async def begin(self, store: Store) -> None:
        """Tell the subscribers of the pending alarms of a partition that is served now."""
        failures = 0
        while any(one is store for one in self._all_serving()):
            try:
                await _in_turns(map(self._offer, store.alarms.pending()))
                return
            except Unavailable as error:
                failures += 1
                log.warning("alarms.found_later", partition=store.partition.number, error=str(error))
                await asyncio.sleep(retry.pause(failures))

    def due(self, until_ms: int, count: int, busy: Collection[str] = ()) -> Sequence[Alarm]:
        found = [due for store in self._all_serving() for due in store.alarms.due(until_ms, count, busy)]
        found.sort(key=lambda due: due[0])
        return list({(alarm.session, alarm.sequence): alarm for _, alarm in found}.values())

    def waiting(self, most: int) -> int:
        return len(list(islice(chain.from_iterable(store.alarms.waiting() for store in self._all_serving()), most)))

    def now_ms(self, session: str) -> int:
        return self._serving(session).partition.now_ms()

    async def note(self, session: str, sequence: int, delivery: Delivery) -> Alarm | None:
        store = self._serving(session)
        alarm = _read(store, session, sequence)
        return None if alarm is None else self._show(_changed(store, alarm, delivery))

    # --- readers ----------------------------------------------------------------------------------------------------

    def alarms(self, query: AlarmQuery) -> Sequence[Alarm]:
        listed = [store.alarms.listed(query) for store in self._all_for_reading()]
        merged = heapq.merge(*listed, key=lambda alarm: (-alarm.made_at, alarm.session, alarm.sequence))
        return list(islice(merged, query.count))

    def alarm(self, session: str, sequence: int) -> Alarm | None:
        return _read(self._for_reading(session), session, sequence)

    def project_of(self, session: str) -> str | None:
        return self._for_reading(session).alarms.project_of(session)

    async def judge(self, session: str, sequence: int, false: bool) -> Alarm | None:
        store = self._serving(session)
        alarm = _read(store, session, sequence)
        if alarm is None:
            return None
        judged = msgspec.structs.replace(alarm, false=false)
        store.alarms.change(alarm, judged)
        await _logged(store, judged)
        return self._show(judged)

    async def send_again(self, session: str, sequence: int, destination: str) -> Alarm | None:
        store = self._serving(session)
        alarm = _read(store, session, sequence)
        if alarm is None or all(one.destination != destination for one in alarm.deliveries):
            return None
        again = _changed(store, alarm, Delivery(destination, at=store.partition.now_ms()))
        await _logged(store, again)
        self.announce([again])
        return again

    # --- the end ----------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Delete alarms that are too old, or whose session was deleted."""
        for store in self._all_serving():
            if (served := store.presence.served) is not None:
                try:
                    await _in_turns(store.alarms.sweep(served))
                except Unavailable as error:  # The next round tries again.
                    log.warning("alarms.swept_later", partition=store.partition.number, error=str(error))


async def erase_project(store: Store, project: str) -> int:
    """Delete the alarms of a project in a partition; return their number."""
    return await _in_turns(store.alarms.erase_project(project))


async def _in_turns(steps: Iterable[object]) -> int:
    count = 0
    for count, _ in enumerate(steps, 1):
        if count % TOGETHER == 0:
            await asyncio.sleep(0)
    return count


def _read(store: Store, session: str, sequence: int) -> Alarm | None:
    try:
        return store.alarms.get(session, sequence)
    except RecordError as error:
        raise Damaged from error


def _changed(store: Store, alarm: Alarm, delivery: Delivery) -> Alarm:
    """Write a delivery of an alarm."""
    deliveries = tuple(delivery if one.destination == delivery.destination else one for one in alarm.deliveries)
    after = msgspec.structs.replace(alarm, deliveries=deliveries)
    store.alarms.change(alarm, after)
    return after


async def _logged(store: Store, alarm: Alarm) -> None:
    """Wait until the changelog has the row of an alarm; raise Unavailable if that takes too long."""
    logged = asyncio.Event()
    store.alarms.log_again(alarm, logged.set)
    try:
        async with asyncio.timeout(LOGGED_SECONDS):
            await logged.wait()
    except TimeoutError:
        raise Unavailable("the log was too slow; the write may still succeed", uncertain=True) from None
