"""Rules, destinations and alarms over HTTP: what is accepted, refused and shown."""

from typing import Any
from unittest import mock

import msgspec
import pytest
from starlette.testclient import TestClient

from app.shown_alarms import ALARM
from tests.unit.app.conftest import KEY, OPTIONS, House, client_of
from tests.unit.app.double import TAGS
from topics.alarms.alarms import Alarm, Delivery
from topics.keys import new_id
from topics.ports.directory import Principal
from topics.sessions.records import Deleted

RULES = "/api/v1/alarm_rules"
DESTINATIONS = "/api/v1/destinations"
ALARMS = "/api/v1/alarms"
DOGS = {"name": "dogs", "tags": [TAGS[0]]}
LOST = {"when": "source", "events": ["source.lost"], "tags": []}
HOOK = {"name": "hook", "kind": "webhook", "url": "https://example.org/hook"}
PHONE = {"name": "phone", "kind": "ntfy", "url": "https://ntfy.sh/x", "user": "me", "password": "hidden"}


@pytest.fixture(autouse=True)
def other_project(house: House) -> None:
    house.directory.keys["other"] = Principal("other", "organization")
    house.own_sounds.sounds.return_value = []


def added(http: TestClient, path: str, body: dict[str, Any]) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(http: TestClient, method: str, path: str, body: object, status: int, said: str, **headers: str) -> None:
    answer = http.request(method, path, json=body, headers=headers)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text


def test_rule_is_added_changed_and_deleted(http: TestClient) -> None:
    made = added(http, RULES, DOGS)
    assert http.get(RULES).json()["rules"] == [made]
    assert (made["revision"], made["gap"], made["during"], made["enabled"]) == (1, 2.0, None, True)
    one = f"{RULES}/{made['id']}"
    changed = http.put(one, json={**DOGS, "tags": ["Animal"], "duration": 3}).json()
    assert (changed["revision"], changed["duration"], changed["tags"]) == (2, 3.0, ["Animal"])
    foreign = {"x_api_key": "other"}
    assert http.get(RULES, headers={"x-api-key": "other"}).json() == {"rules": []}
    for method, body in (("PUT", DOGS), ("DELETE", None)):
        refused(http, method, one, body, 404, "no such rule", **{"x-api-key": foreign["x_api_key"]})
        refused(http, method, f"{RULES}/x%00", body, 404, "no such rule")
    assert http.delete(one).status_code == 204
    assert http.get(RULES).json() == {"rules": []}


def test_project_deleted_meanwhile_gets_neither_rule_nor_destination(house: House, http: TestClient) -> None:
    house.alarms.gone = True
    for path, body in ((RULES, DOGS), (DESTINATIONS, HOOK)):
        refused(http, "POST", path, body, 404, "this project was deleted")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tags": ["Dog_barks"]}, "tags: 'Dog_barks' is no tag, own sound or class; the nearest one is 'Dog_bark'"),
        ({"tags": []}, "a rule for 'heard' needs tags"),
        ({"probability": 2}, "probability"),
        ({"when": "absent", "duration": 5, "gap": 0}, "gap: a rule for 'absent' takes none"),
        ({"when": "absent", "duration": 5, "level": -20}, "level: a rule for 'absent' takes none"),
        ({"when": "loud", "level": -20}, "tags: a rule for 'loud' takes none"),
        ({"when": "loud", "level": -20, "tags": [], "probability": 0.9}, "probability: a rule for 'loud' takes none"),
        ({"when": "source", "tags": []}, "a rule for 'source' needs events"),
        ({**LOST, "duration": 5}, "duration: a rule for 'source' takes none"),
        ({**LOST, "gap": 3}, "gap: a rule for 'source' takes none"),
        ({"events": ["source.lost"]}, "events: a rule for 'heard' takes none"),
        ({"during": {"begins": "22:00", "ends": "06:00", "zone": "Europe/Atlantis"}}, "no time zone 'Europe/Atlantis'"),
        ({"during": {"begins": "22:00\n", "ends": "06:00"}}, "matching regex"),
        ({"labels": {"floor": 4096 * "1"}}, "labels: have more than 4096 characters"),
        ({"during": {"begins": "24:00", "ends": "06:00"}}, "during: Expected"),
        ({"name": " dogs"}, "name: only printable"),
        ({"name": "a\0b"}, "name: only printable"),
        ({"destinations": ["x"]}, "no destination with the id 'x'"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_rule_gets_one_sentence(http: TestClient, change: dict[str, Any], said: str) -> None:
    known = added(http, RULES, {**DOGS, "name": "known"})
    for method, path in (("POST", RULES), ("PUT", f"{RULES}/{known['id']}")):
        refused(http, method, path, {**DOGS, **change}, 400, said)


def test_own_sounds_are_tags_of_rules(house: House, http: TestClient) -> None:
    house.own_sounds.sounds.return_value = [type("Sound", (), {"name": "Kettle"})]
    rule = {**DOGS, "tags": ["Kettle", TAGS[0]]}
    made = added(http, RULES, rule)
    assert made["tags"] == ["Kettle", TAGS[0]]
    house.own_sounds.sounds.return_value = []  # It was deleted.
    one = f"{RULES}/{made['id']}"
    assert http.put(one, json={**rule, "enabled": False}).json()["enabled"] is False
    refused(http, "PUT", one, {**rule, "tags": ["Kettle", "Ketle"]}, 400, "'Ketle' is no tag")
    refused(http, "POST", RULES, {**rule, "name": "other"}, 400, "'Kettle' is no tag")


def test_names_are_unique_and_counts_capped(house: House, http: TestClient) -> None:
    house.alarms.most = 2
    for path, body, what in ((RULES, DOGS, "rule"), (DESTINATIONS, HOOK, "destination")):
        added(http, path, body)
        refused(http, "POST", path, body, 409, f"has a {what} {body['name']!r} already")
        second = added(http, path, {**body, "name": "second"})
        id = second.get("id") or second["destination"]["id"]
        taken = {name: value for name, value in body.items() if name != "kind"}
        refused(http, "PUT", f"{path}/{id}", taken, 409, f"has a {what} {body['name']!r} already")
        refused(http, "POST", path, {**body, "name": "third"}, 409, f"has 2 {what}s, its limit")


def test_secrets_and_passwords_are_shown_once(house: House, http: TestClient) -> None:
    answer = http.post(DESTINATIONS, json=HOOK)
    assert (answer.headers["cache-control"], answer.json()["secret"]) == ("no-store", "whsec_one")
    phone = added(http, DESTINATIONS, PHONE)
    assert phone["secret"] is None
    assert (phone["destination"]["user"], phone["destination"]["has_password"]) == ("me", True)
    hook = f"{DESTINATIONS}/{answer.json()['destination']['id']}"
    rotated = http.post(f"{hook}/secret")
    assert (rotated.headers["cache-control"], rotated.json()) == ("no-store", {"secret": "whsec_new"})
    shown = http.get(DESTINATIONS).text
    assert "whsec" not in shown
    assert "hidden" not in shown
    refused(
        http, "POST", f"{DESTINATIONS}/{phone['destination']['id']}/secret", None, 400, "only the secrets of webhooks"
    )
    for _ in range(3):
        assert http.post(f"{hook}/secret").status_code == 200
    refused(http, "POST", f"{hook}/secret", None, 409, "5 secrets of this destination still sign")


def test_password_stays_unless_its_destination_changes(house: House, http: TestClient) -> None:
    phone = f"{DESTINATIONS}/{added(http, DESTINATIONS, PHONE)['destination']['id']}"
    (known,) = house.alarms.known.values()
    house.alarms.known[known.id] = msgspec.structs.replace(known, enabled=False, fault="it answered 410")
    body = {"name": "mobile", "url": PHONE["url"], "user": "me", "enabled": False}
    assert http.put(phone, json=body).json()["fault"] == "it answered 410"
    changed = http.put(phone, json={**body, "enabled": True}).json()
    assert (changed["name"], changed["fault"], changed["enabled"], changed["has_password"]) == (
        "mobile",
        None,
        True,
        True,
    )
    for change in ({"url": "https://elsewhere.example/x"}, {"user": None}):
        refused(http, "PUT", phone, {**body, **change}, 400, "password: is needed again")
        assert http.put(phone, json={**body, **change, "password": "other"}).status_code == 200
        assert http.put(phone, json={**body, "password": "hidden"}).status_code == 200
    assert http.put(phone, json={**body, "password": None}).json()["has_password"] is False


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "http://192.168.1.4/hook"}, "192.168.1.4 is not a public address"),
        ({"url": "ftp://example.org"}, "not a URL of webhook, such as https://"),
        ({"url": "https://[bad"}, "not a URL of webhook"),
        ({"url": "https://example.org:99999"}, "not a URL of webhook"),
        ({"url": "https://"}, "not a URL of webhook"),
        ({"url": "https://me:secret@example.org"}, "have fields of their own"),
        ({"url": "https://example.org/\n"}, "url: only printable"),
        ({"url": ""}, "url"),
        ({"name": ""}, "name"),
        ({"user": "a\0"}, "user: only printable"),
        ({"password": "a\0"}, "password: must not contain NUL"),
        ({"options": {"x": 1}}, "options"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_wrong_destination_gets_one_sentence(http: TestClient, change: dict[str, Any], said: str) -> None:
    known = added(http, DESTINATIONS, {**HOOK, "name": "known"})["destination"]
    refused(http, "POST", DESTINATIONS, {**HOOK, **change}, 400, said)
    body = {name: value for name, value in {**HOOK, **change}.items() if name != "kind"}
    refused(http, "PUT", f"{DESTINATIONS}/{known['id']}", body, 400, said)


def test_destination_is_tested_and_deleted(house: House, http: TestClient) -> None:
    id = added(http, DESTINATIONS, HOOK)["destination"]["id"]
    sent = http.post(f"{DESTINATIONS}/{id}/test").json()
    assert (sent["destination_id"], sent["state"], sent["status"]) == (id, "delivered", 204)
    assert house.alarms.tested == list(house.alarms.known.values())
    rule = added(http, RULES, {**DOGS, "destinations": [id]})["id"]
    refused(http, "DELETE", f"{DESTINATIONS}/{id}", None, 409, "the rule 'dogs' sends to this destination")
    assert http.delete(f"{RULES}/{rule}").status_code == 204
    foreign = {"x-api-key": "other"}
    body = {"name": "hook", "url": HOOK["url"]}
    for method, path, content in (
        ("PUT", "", body),
        ("DELETE", "", None),
        ("POST", "/test", None),
        ("POST", "/secret", None),
    ):
        refused(http, method, f"{DESTINATIONS}/{id}{path}", content, 404, "no such destination", **foreign)
        refused(http, method, f"{DESTINATIONS}/x{path}", content, 404, "no such destination")
    assert http.delete(f"{DESTINATIONS}/{id}").status_code == 204
    assert http.get(DESTINATIONS).json() == {"destinations": []}


@pytest.mark.parametrize(("needs_key", "key", "deletes"), [(False, "", 1), (True, KEY, 1), (True, "other", 0)])
def test_session_that_expired_is_deleted_with_its_alarms(needs_key: bool, key: str, deletes: int) -> None:
    house = House(msgspec.structs.replace(OPTIONS, sessions_need_key=needs_key))
    house.directory.keys["other"] = Principal("other", "organization")
    house.sessions.submit = mock.AsyncMock()  # type: ignore[method-assign]
    path = f"/audio_sessions/{ALARM.session}"
    with client_of(house, x_api_key=key) as http:
        refused(http, "DELETE", path, None, 404, "does not exist")
        assert not house.sessions.submit.called, "it has no alarms"
        alarm(house, 1)
        refused(http, "DELETE", path, None, 404, "does not exist")
        assert [type(call.args[1]) for call in house.sessions.submit.mock_calls] == [Deleted] * deletes


def alarm(house: House, sequence: int, **change: Any) -> Alarm:
    made = msgspec.structs.replace(ALARM, sequence=sequence, made_at=ALARM.made_at + sequence // 2, **change)
    made = msgspec.structs.replace(made, project=change.get("project", "project"))
    house.alarms.add(made)
    return made


def test_alarms_are_listed_newest_first(house: House, http: TestClient) -> None:
    for sequence in range(5):
        alarm(house, sequence)
    alarm(house, 9, project="other")
    page, found = http.get(ALARMS, params={"count": 2}).json(), []
    while True:
        found += [one["sequence"] for one in page["alarms"]]
        if "next_token" not in page:
            break
        page = http.get(ALARMS, params={"next_token": page["next_token"]}).json()
    assert found == [4, 2, 3, 0, 1]
    times = {one["sequence"]: one["made_at"] for one in http.get(ALARMS).json()["alarms"]}
    since = http.get(ALARMS, params={"since": times[2], "until": times[4]}).json()["alarms"]
    assert [one["sequence"] for one in since] == [2, 3]
    (shown,) = http.get(ALARMS, params={"since": times[4]}).json()["alarms"]
    assert shown["id"].startswith("msg_")
    assert (shown["rule"], shown["source"], shown["begins_at"], shown["start"]) == (
        "smoke alarm",
        "kitchen",
        "2026-11-22T06:30:12.000Z",
        28.0,
    )
    for name in "count", "since", "next_token":
        refused(http, "GET", f"{ALARMS}?{name}=x", None, 400, name)
    house.alarms.unavailable = True
    assert http.get(ALARMS).status_code == 503


def test_alarm_is_judged_and_sent_again(house: House, http: TestClient) -> None:
    made = alarm(house, 3)
    (sent,) = made.deliveries
    one = f"{ALARMS}/{made.session}/3"
    assert http.patch(one, json={"false": True}).json()["false"] is True
    again = http.post(f"{one}/deliveries/{sent.destination}").json()
    assert [(each["state"], each["attempts"], each["at"]) for each in again["deliveries"]] == [("pending", 0, None)]
    assert house.alarms.made[made.session, 3].deliveries == (Delivery(sent.destination),)
    refused(http, "POST", f"{one}/deliveries/{new_id()}", None, 404, "was not sent to this destination")
    refused(http, "PATCH", one, {"false": "yes"}, 400, "false")
    foreign = {"x-api-key": "other"}
    unknown = f"{ALARMS}/{made.session}"
    for path in (f"{unknown}/4", f"{unknown}/x", f"{unknown}/{'9' * 30}", f"{ALARMS}/x/3"):
        refused(http, "PATCH", path, {"false": True}, 404, "no such alarm")
        refused(http, "POST", f"{path}/deliveries/{sent.destination}", None, 404, "no such alarm")
    refused(http, "PATCH", one, {"false": True}, 404, "no such alarm", **foreign)
    refused(http, "POST", f"{one}/deliveries/{sent.destination}", None, 404, "no such alarm", **foreign)


def test_requests_about_alarms_are_forwarded_to_owner(house: House, http: TestClient) -> None:
    made = alarm(house, 3)
    house.sessions.elsewhere[made.session] = "http://127.0.0.1:9"
    one = f"{ALARMS}/{made.session}/3"
    for method, path in (("PATCH", one), ("POST", f"{one}/deliveries/x")):
        refused(http, method, path, {"false": True}, 503, "the node that owns it does not answer")
