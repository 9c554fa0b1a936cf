"""Both clients and the commands for rules, destinations and alarms."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

import earshot_client as sdk
from app.shown_alarms import ALARM
from earshot_client import Client
from tests.unit.app.client.conftest import Command
from tests.unit.app.conftest import KEY, House
from tests.unit.app.double import TAGS
from tests.unit.app.sessions.sockets import opened
from tests.unit.app.sessions.test_live import put
from topics.alarms.alarms import Delivery

DOGS = sdk.AlarmRule(name="dogs", tags=(TAGS[0],), during=sdk.TimeOfDay("22:00", "06:00"))
LOST = ("--when", "source", "--event", "source.lost")
HOOK = sdk.Destination(name="hook", kind="webhook", url="https://example.org/hook")
PHONE = sdk.Destination(name="phone", kind="ntfy", url="https://ntfy.sh/x", options={"priority": "5"})


@pytest.fixture
def alarms(earshot: Command, url: str) -> Callable[..., Any]:
    """Runs a command with --json and returns its value."""

    def run(*words: object, code: int = 0) -> Any:
        status, lines, err = earshot(*words, "--json", url=url, project_key=KEY)
        assert status == code, err
        return json.loads("\n".join(lines)) if lines else err

    return run


def kept(house: House) -> None:
    house.own_sounds.sounds.return_value = []
    house.alarms.add(msgspec.structs.replace(ALARM, project="project"))


def test_rules_and_destinations_by_client(either: Client, house: House) -> None:
    kept(house)
    added = either.add_destination(HOOK)
    assert (added.secret, added.destination.name) == ("whsec_one", "hook")
    phone = either.add_destination(PHONE, "token").destination
    assert (phone.has_password, phone.options) == (True, {"priority": "5"})
    quiet = either.change_destination(msgspec.structs.replace(phone, enabled=False))
    assert (quiet.has_password, quiet.enabled) == (True, False)
    assert not either.change_destination(phone, None).has_password
    assert either.rotate_destination(added.destination.id) == "whsec_new"
    sent = either.test_destination(phone.id)
    assert (sent.destination_id, sent.state, sent.status) == (phone.id, "delivered", 204)
    made = either.add_alarm_rule(msgspec.structs.replace(DOGS, destinations=(phone.id,)))
    assert (made.revision, made.during, made.gap) == (1, sdk.TimeOfDay("22:00", "06:00"), 2.0)
    changed = either.change_alarm_rule(msgspec.structs.replace(made, duration=3.0))
    assert (changed.id, changed.revision, changed.duration) == (made.id, 2, 3.0)
    assert either.alarm_rules() == (changed,)
    for wrong in (partial(either.add_alarm_rule, made), partial(either.delete_destination, phone.id)):
        with pytest.raises(sdk.AlarmConflict):
            wrong()
    with pytest.raises(sdk.AlarmNotFound, match="no such rule"):
        either.change_alarm_rule(msgspec.structs.replace(made, id="x"))
    for _ in range(2):
        either.delete_alarm_rule(made.id)
        either.delete_destination(phone.id)
    assert [one.name for one in either.destinations()] == ["hook"]


def test_alarms_by_client(either: Client, house: House) -> None:
    kept(house)
    (alarm,) = either.alarms()
    assert either.list_alarms(count=1).entries == (alarm,)
    assert (alarm.rule, alarm.source, alarm.tags) == (
        "smoke alarm",
        "kitchen",
        (sdk.AlarmTag("Fire_smoke_alarm", 0.97),),
    )
    assert alarm.deliveries[0].state == "delivered"
    assert either.mark_alarm(alarm.session_id, alarm.sequence).false
    assert not either.mark_alarm(alarm.session_id, alarm.sequence, false=False).false
    (sent,) = either.send_alarm_again(alarm.session_id, alarm.sequence, alarm.deliveries[0].destination_id).deliveries
    assert (sent.state, sent.at) == ("pending", None)
    with pytest.raises(sdk.AlarmNotFound, match="no such alarm"):
        either.mark_alarm(alarm.session_id, 99)


async def stream(house: House) -> None:
    await put(house, await opened(house), 0, 5.0)


def test_rule_is_tried_by_client(either: Client, house: House) -> None:
    asyncio.run(stream(house))
    trial = either.test_alarm_rule(msgspec.structs.replace(DOGS, during=None, cooldown=0.0, gap=0.0), "2026-01-02")
    assert (trial.day, trial.sessions, trial.total) == ("2026-01-02", 1, len(trial.alarms))
    assert trial.alarms[0].tags[0].name == TAGS[0]


def test_rule_of_the_issue_by_command(alarms: Callable[..., Any], house: House) -> None:
    kept(house)
    assert alarms("destinations", "add", "phone", "https://ntfy.sh/x", "--option", "priority=5")["kind"] == "ntfy"
    options = (
        "--duration",
        3,
        "--to",
        "phone",
        "--label",
        "floor=1",
        "--during",
        "22:00-06:00",
        "--zone",
        "Europe/Berlin",
    )
    made = alarms("rules", "add", "dogs at night", "--tag", TAGS[0], "--source", "yard", *options)
    assert (made["tags"], made["duration"], made["to"], made["source"]) == (TAGS[0], 3.0, "phone", "yard")
    (stored,) = house.alarms.known_rules.values()
    assert (stored.rule.labels, stored.rule.during and stored.rule.during.zone) == ({"floor": "1"}, "Europe/Berlin")
    changed = alarms("rules", "change", "dogs at night", "--during", "21:00-05:00", "--first-of-day", "--gap", 5)
    assert (changed["first_of_day"], changed["gap"]) == (True, 5.0)
    assert changed["during"] == "21:00-05:00 Europe/Berlin"
    changed = alarms("rules", "change", "dogs at night", "--zone", "Asia/Kathmandu")
    assert changed["during"] == "21:00-05:00 Asia/Kathmandu"
    changed = alarms(
        "rules", "change", "dogs at night", "--source", "", "--during", "", *["--label=", "--off", "--name", "dogs"]
    )
    assert (changed["source"], changed["during"], changed["on"], changed["duration"]) == (None, None, False, 3.0)
    assert alarms("rules", "list") == [changed]
    asyncio.run(stream(house))
    assert alarms("rules", "test", "dogs", "--day", "2026-01-02")[0]["what"].startswith(TAGS[0])
    for words, said in (
        (("rules", "add", "x", "--tag", TAGS[0], "--to", "fax"), "no such destination; there are phone"),
        (("rules", "add", "x", "--label", "floor"), "not NAME=VALUE"),
        (("rules", "add", "x", *LOST, "--duration", 5), "duration: a rule for 'source' takes none"),
        (("rules", "add", "x", "--tag", TAGS[0], "--level", "nan"), "--level nan: not a number"),
        (("rules", "change", "dogs", "--zone", "Europe/Berlin"), "--zone Europe/Berlin: it belongs to --during"),
        (("rules", "test", "cats"), "there is no rule 'cats'"),
        (("destinations", "add", "x", "https://x.org", "--option", "x"), "not NAME=VALUE"),
        (("destinations", "test", "fax"), "there is no destination 'fax'"),
        (("alarms", "--false", "x"), "not an alarm as `earshot alarms` lists them"),
    ):
        assert said in alarms(*words, code=1)
    lost = alarms("rules", "change", "dogs", *LOST)
    assert (lost["when"], lost["tags"], lost["duration"], lost["events"]) == ("source", "", 0.0, "source.lost")
    assert alarms("rules", "remove", "dogs", "--yes") == {"deleted": "dogs"}
    assert alarms("destinations", "remove", "phone", "--yes") == {"deleted": "phone"}


def test_secrets_of_webhooks_by_command(alarms: Callable[..., Any], house: House) -> None:
    assert alarms("destinations", "add", "hook", "https://example.org/hook")["secret"] == "whsec_one"
    assert alarms("destinations", "add", "home", "mqtts://broker.example.org")["kind"] == "mqtt"
    assert alarms("destinations", "rotate", "hook", "--yes") == {"name": "hook", "secret": "whsec_new"}
    assert [one["name"] for one in alarms("destinations", "list")] == ["hook", "home"]
    assert alarms("destinations", "test", "hook")["state"] == "delivered"
    house.alarms.outcome = Delivery("", "failed", 1, 1, 404, "it answered with the status 404")
    assert alarms("destinations", "test", "hook", code=1)["error"] == "it answered with the status 404"


def test_alarms_by_command(alarms: Callable[..., Any], house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(house)
    (listed,) = alarms("alarms")
    assert (listed["rule"], listed["source"], listed["what"]) == ("smoke alarm", "kitchen", "Fire_smoke_alarm 0.97")
    assert alarms("alarms", "--false", listed["alarm"])["false"] == "false"
    event = sdk.LiveEvent("alarm", msgspec.json.encode(msgspec.to_builtins(house_alarm(house))))
    events = [sdk.LiveEvent("window", b"{}"), event, event]
    monkeypatch.setattr(Client, "project_live", lambda self: iter(events))
    assert alarms("alarms", "--follow")["alarm"] == listed["alarm"]


def house_alarm(house: House) -> Any:
    from app.shown_alarms import ShownAlarm

    (alarm,) = house.alarms.made.values()
    return ShownAlarm.of(alarm)
