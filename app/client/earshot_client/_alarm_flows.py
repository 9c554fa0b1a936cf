"""Flows of requests about rules, destinations and alarms."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ._alarm_values import AddedDestination, Alarm, AlarmDelivery, AlarmRule, Destination, RuleTrial
from ._calls import Call, Flow, finite, segment
from ._errors import ALARM_ERRORS, AlarmNotFound
from ._json import done, fetch
from ._list_values import AlarmPage


class _Rules(msgspec.Struct, frozen=True):
    rules: tuple[AlarmRule, ...]


class _Destinations(msgspec.Struct, frozen=True):
    destinations: tuple[Destination, ...]


class _Secret(msgspec.Struct, frozen=True):
    secret: str


def rules(key: str) -> Flow[tuple[AlarmRule, ...]]:
    return (yield from fetch(_call("GET", key, "alarm_rules"), _Rules, ALARM_ERRORS)).rules


def add_rule(key: str, rule: AlarmRule) -> Flow[AlarmRule]:
    """Add a rule. It is retried only if nothing was done: its name would be taken."""
    return fetch(_call("POST", key, "alarm_rules", fields=_rule(rule)), AlarmRule, ALARM_ERRORS, repeatable=False)


def change_rule(key: str, rule: AlarmRule) -> Flow[AlarmRule]:
    return fetch(_call("PUT", key, "alarm_rules", rule.id, fields=_rule(rule)), AlarmRule, ALARM_ERRORS)


def test_rule(key: str, rule: AlarmRule, day: str | None, offset_minutes: int) -> Flow[RuleTrial]:
    query = {"offset_minutes": str(offset_minutes)} | ({} if day is None else {"day": day})
    return fetch(_call("POST", key, "alarm_rules", "test", fields=_rule(rule), query=query), RuleTrial, ALARM_ERRORS)


def destinations(key: str) -> Flow[tuple[Destination, ...]]:
    return (yield from fetch(_call("GET", key, "destinations"), _Destinations, ALARM_ERRORS)).destinations


def add_destination(key: str, new: Destination, password: str | None) -> Flow[AddedDestination]:
    """Add a destination. It is retried only if nothing was done: its name would be taken."""
    fields = _destination(new) | {"kind": new.kind, "password": password}
    call = _call("POST", key, "destinations", fields=fields)
    return fetch(call, AddedDestination, ALARM_ERRORS, repeatable=False)


def change_destination(key: str, one: Destination, password: Mapping[str, str | None]) -> Flow[Destination]:
    fields = {**_destination(one), **password}
    return fetch(_call("PUT", key, "destinations", one.id, fields=fields), Destination, ALARM_ERRORS)


def rotate(key: str, id: str) -> Flow[str]:
    """Rotate a secret. It is retried only if nothing was done: each try would make another one."""
    call = _call("POST", key, "destinations", id, "secret")
    return (yield from fetch(call, _Secret, ALARM_ERRORS, repeatable=False)).secret


def test_destination(key: str, id: str) -> Flow[AlarmDelivery]:
    return fetch(_call("POST", key, "destinations", id, "test"), AlarmDelivery, ALARM_ERRORS, repeatable=False)


def delete(key: str, kind: str, id: str) -> Flow[None]:
    """Delete a rule or destination. A missing one counts as deleted: an answer to an earlier try may have been lost."""
    try:
        yield from done(_call("DELETE", key, kind, id), ALARM_ERRORS)
    except AlarmNotFound:
        return


def listing(key: str, query: Mapping[str, str]) -> Flow[AlarmPage]:
    return fetch(_call("GET", key, "alarms", query=query), AlarmPage, ALARM_ERRORS)


def judge(key: str, session_id: str, sequence: int, false: bool) -> Flow[Alarm]:
    return fetch(_call("PATCH", key, "alarms", session_id, str(sequence), fields={"false": false}), Alarm, ALARM_ERRORS)


def send_again(key: str, session_id: str, sequence: int, destination_id: str) -> Flow[Alarm]:
    path = "alarms", session_id, str(sequence), "deliveries", destination_id
    return fetch(_call("POST", key, *path), Alarm, ALARM_ERRORS, repeatable=False)


def _rule(rule: AlarmRule) -> AlarmRule:
    """Return a rule as requests have it."""
    return msgspec.structs.replace(rule, id="", revision=0, level=finite(rule.level))


def _destination(one: Destination) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("name", "url", "user", "options", "enabled")}


def _call(method: str, key: str, *path: str, fields: object = None, query: Mapping[str, str] = {}) -> Call:
    body = b"" if fields is None else msgspec.json.encode(fields)
    address = "/".join(["/api/v1", *map(segment, path)])
    return Call(method, address, body, {"X-Api-Key": key, "Content-Type": "application/json"}, query)
