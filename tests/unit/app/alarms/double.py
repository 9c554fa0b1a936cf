"""Rules, destinations and alarms in memory."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.rules import AlarmRule, StoredRule
from topics.errors import BadRequest, Conflict, NotFound, Unavailable
from topics.keys import new_id
from topics.ports.alarms import AlarmQuery, Destination


class MemoryAlarms:
    """Implements the ports `Alarms`, `AlarmSettings` and `TestDelivery`."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], Alarm] = {}
        self.known_rules: dict[str, StoredRule] = {}
        self.known: dict[str, Destination] = {}
        #: The outcome of test messages.
        self.outcome = Delivery("", "delivered", 1, 1, 204)
        self.tested: list[Destination] = []
        self.most = 10
        self.unavailable = False
        #: The project was deleted.
        self.gone = False

    def alarms(self, query: AlarmQuery) -> Sequence[Alarm]:
        self._fail()
        found = sorted(
            (
                ((-one.made_at, one.session, one.sequence), one)
                for one in self.made.values()
                if one.project == query.project and query.since_ms <= one.made_at < query.until_ms
            ),
            key=lambda entry: entry[0],
        )
        after = query.after and (-query.after[0], *query.after[1:])
        return [one for place, one in found if after is None or place > after][: query.count]

    def alarm(self, session: str, sequence: int) -> Alarm | None:
        self._fail()
        return self.made.get((session, sequence))

    def project_of(self, session: str) -> str | None:
        return next((one.project for one in self.made.values() if one.session == session), None)

    async def judge(self, session: str, sequence: int, false: bool) -> Alarm | None:
        return self._change(session, sequence, false=false)

    async def send_again(self, session: str, sequence: int, destination: str) -> Alarm | None:
        return self._change(session, sequence, deliveries=(Delivery(destination),))

    def add(self, alarm: Alarm) -> None:
        self.made[alarm.session, alarm.sequence] = alarm

    def _change(self, session: str, sequence: int, **change: Any) -> Alarm | None:
        if (known := self.alarm(session, sequence)) is not None:
            self.add(known := msgspec.structs.replace(known, **change))
        return known

    def _fail(self) -> None:
        if self.unavailable:
            raise Unavailable("the queue is full")

    def _write(self) -> None:
        if self.gone:
            raise NotFound("this project was deleted")

    async def rules(self, project: str) -> Sequence[StoredRule]:
        return [one for one in self.known_rules.values() if one.project == project]

    async def add_rule(self, project: str, rule: AlarmRule) -> StoredRule:
        await self._check_rule(project, rule)
        if len(self.known_rules) >= self.most:
            raise Conflict(f"the project has {self.most} rules, its limit: remove one")
        stored = StoredRule(new_id(), project, 1, rule)
        self.known_rules[stored.id] = stored
        return stored

    async def change_rule(self, project: str, id: str, rule: AlarmRule) -> StoredRule:
        await self._check_rule(project, rule, id)
        if (known := self.known_rules.get(id)) is None or known.project != project:
            raise NotFound("the project has no such rule")
        self.known_rules[id] = StoredRule(id, project, known.revision + 1, rule)
        return self.known_rules[id]

    async def remove_rule(self, project: str, id: str) -> None:
        if (known := self.known_rules.get(id)) is None or known.project != project:
            raise NotFound("the project has no such rule")
        del self.known_rules[id]

    async def _check_rule(self, project: str, rule: AlarmRule, id: str = "") -> None:
        self._write()
        for destination in rule.destinations:
            if destination not in self.known:
                raise BadRequest(f"destinations: the project has no destination with the id {destination[:60]!r}")
        if any(one.rule.name == rule.name and one.id != id for one in await self.rules(project)):
            raise Conflict(f"the project has a rule {rule.name!r} already: choose another name")

    async def destinations(self, project: str) -> Sequence[Destination]:
        return [one for one in self.known.values() if one.project == project]

    async def destination(self, project: str, id: str) -> Destination:
        if (known := self.known.get(id)) is None or known.project != project:
            raise NotFound("the project has no such destination")
        return known

    async def add_destination(self, destination: Destination) -> Destination:
        self._write()
        self._check_name(self.known.values(), destination)
        if len(self.known) >= self.most:
            raise Conflict(f"the project has {self.most} destinations, its limit: remove one")
        secrets = ("whsec_one",) if destination.kind == "webhook" else ()
        return self._keep(msgspec.structs.replace(destination, id=new_id(), secrets=secrets))

    async def change_destination(self, destination: Destination) -> Destination:
        await self.destination(destination.project, destination.id)
        self._check_name(self.known.values(), destination)
        return self._keep(destination)

    async def remove_destination(self, project: str, id: str) -> None:
        await self.destination(project, id)
        for one in self.known_rules.values():
            if id in one.rule.destinations:
                raise Conflict(f"the rule {one.rule.name!r} sends to this destination: change or remove the rule first")
        del self.known[id]

    async def rotate_secret(self, project: str, id: str) -> Destination:
        known = await self.destination(project, id)
        if known.kind != "webhook":
            raise BadRequest("only the secrets of webhooks are rotated")
        if len(known.secrets) == 5:
            raise Conflict("5 secrets of this destination still sign, the limit: try again in a day")
        return self._keep(msgspec.structs.replace(known, secrets=("whsec_new", *known.secrets)))

    def check(self, destination: Destination) -> None:
        if "//192.168." in destination.url:
            raise BadRequest("url: 192.168.1.4 is not a public address")

    async def test(self, destination: Destination) -> Delivery:
        self.tested.append(destination)
        return msgspec.structs.replace(self.outcome, destination=destination.id)

    def _check_name(self, known: Collection[Destination], new: Destination) -> None:
        if any(one.name == new.name and one.id != new.id for one in known):
            raise Conflict(f"the project has a destination {new.name!r} already: choose another name")

    def _keep(self, one: Destination) -> Destination:
        self.known[one.id] = one
        return one
