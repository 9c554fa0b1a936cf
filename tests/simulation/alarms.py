"""Rules of alarms in histories, who delivers what they make, and what they must have made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from streams.alarms.outbox import AlarmOutbox
from streams.folding.head_store import above
from streams.sessions.store import SessionStore
from tests.simulation.scorer import MODEL, TAGS, window
from topics import keys
from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.evaluation import Heard, Watch, Watched, evaluate
from topics.alarms.rules import AlarmRule, StoredRule
from topics.alarms.tags import Classes
from topics.errors import EarshotError
from topics.sessions.records import Opened

if TYPE_CHECKING:
    from tests.simulation.clients import Session

NAMES: Final = ("First", "Second", "Third", "Last")
assert len(NAMES) == TAGS
#: None is about the last tag, whose scores depend on the processor.
_RULES: Final = (
    AlarmRule("each", tags=("First",), gap=0, cooldown=0, destinations=("d",)),
    AlarmRule("long", tags=("Second", "Third"), duration=2, gap=1, cooldown=0, destinations=("d", "e")),
    AlarmRule("absent", "absent", tags=("Third",), duration=2, cooldown=3),
    AlarmRule("source", "source", events=("source.lost", "source.back", "source.silent"), cooldown=1),
)
RULES: Final = [StoredRule(f"rule-{rule.name}", "p", 1, rule) for rule in _RULES]


class Rules:
    """The rules of all projects, and the tags of the only model."""

    def of(self, project: str) -> Sequence[StoredRule]:
        return RULES

    def tags(self, model: str) -> Sequence[str]:
        assert model == MODEL
        return NAMES

    def classes(self, model: str) -> Classes:
        return {}


class Deliveries:
    """Delivers alarms at once, and again until that is noted, as nodes do; `received` is what destinations got."""

    def __init__(self, outbox: AlarmOutbox, received: Received, seed: object) -> None:
        self._outbox = outbox
        self._received = received
        #: Of its own, so that histories are the same without alarms.
        self._chance = random.Random(f"deliveries {seed}")
        self._made: list[Alarm] = []
        outbox.subscribe(self._made.append)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.random())
            made, self._made[:] = list(self._made), []
            with suppress(EarshotError):
                for alarm in [*made, *self._outbox.due(keys.LATEST_MS - 1, 100)]:
                    for delivery in alarm.pending:
                        self._received.setdefault((alarm.session, alarm.sequence), set()).add(_about(alarm))
                        await asyncio.sleep(self._chance.random() * 0.1)
                        await self._outbox.note(
                            alarm.session, alarm.sequence, Delivery(delivery.destination, "delivered", 1)
                        )


#: What was received of each (session, sequence).
Received = dict[tuple[str, int], set[tuple[str, int]]]


def _about(alarm: Alarm) -> tuple[str, int]:
    return alarm.rule, alarm.window


def pending(store: SessionStore) -> bool:
    return any(some for some in store.alarms.pending())


def faults(session: Session, store: SessionStore) -> Iterable[str]:
    """Yield what is wrong with the alarms of a session that was analysed: each once, in order, without holes."""
    opened = Opened("", session.kind, "audio/wav", session.project, 1000, 1000)
    watch = Watch(session.id, opened, False, RULES, NAMES, {})
    heard = Heard(0, b"".join(map(window, session.chunks)), notes=store.notes(session.id, 0))
    _, made = evaluate(watch, Watched(), heard, partial(store.time_of, session.id), 0)
    found = [store.alarms.get(session.id, number) for number in range(rows_of(session.id, store))]
    if [alarm and _about(alarm) for alarm in found] != [_about(alarm) for alarm in made]:
        yield f"its alarms are {found}, not {made}"


def lost(sessions: Iterable[Session], stores: Mapping[int, SessionStore], received: Received) -> Iterator[str]:
    """Yield what is wrong with what destinations received."""
    for session in sessions:
        store = stores[keys.partition_of(session.id, len(stores))]
        for number in range(0 if session.deleted else rows_of(session.id, store)):
            alarm, got = store.alarms.get(session.id, number), received.get((session.id, number), set())
            if alarm is not None and got != ({_about(alarm)} if alarm.deliveries else set()):
                yield f"{session.id}: alarm {number} is {_about(alarm)}, and received were {got}"


def rows_of(session: str, store: SessionStore) -> int:
    """Return how many rows of alarms a session has."""
    prefix = keys.alarm_key(session)
    return sum(1 for _ in store.partition.scan(prefix, above(prefix)))
