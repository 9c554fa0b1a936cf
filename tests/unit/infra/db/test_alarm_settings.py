"""Rules and destinations in the database: changes, caps, secrets, and deletion with the project."""

import asyncio
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from sqlalchemy import text

from infra.db import alarm_settings
from infra.db.accounts import Accounts
from infra.db.alarm_settings import SqlAlarmSettings
from infra.db.database import Database
from infra.service.alarm_settings import KnownDestinations, KnownRules
from tests.unit.infra.conftest import SQLITE, stored
from topics.alarms.rules import AlarmRule, TimeOfDay
from topics.errors import BadRequest, Conflict, DirectoryDown, NotFound
from topics.ports.alarms import Destination
from topics.times import DAY_MS

SMOKE = AlarmRule("smoke", tags=("Smoke_alarm",), during=TimeOfDay("22:00", "06:00", "Europe/Berlin"))
PHONE = Destination("", "", "phone", "ntfy", "https://ntfy.sh/x", True, None, password="the-token-of-ntfy")
HOOK = Destination("", "", "hook", "webhook", "https://example.org/hook", True, None)


async def project(database: Database, name: str = "apes") -> str:
    accounts = Accounts(database)
    if not await accounts.organizations():
        await accounts.create_organization("Zoo")
    return (await accounts.create_project(name))[0].id


async def test_rules_change_and_end_with_their_project(database: Database) -> None:
    apes, bats = await project(database), await project(database, "bats")
    known = KnownRules(database)
    settings = SqlAlarmSettings(database, changed=known.look)
    await known.look()
    assert known.of(apes) == ()
    made = await settings.add_rule(apes, SMOKE)
    assert (made.rule, made.revision, await settings.rules(apes)) == (SMOKE, 1, [made])
    assert known.of(apes) == [made]
    with pytest.raises(Conflict, match="has a rule 'smoke' already"):
        await settings.add_rule(apes, SMOKE)
    await known.look()
    assert known.of(apes) == [made]
    changed = await settings.change_rule(apes, made.id, msgspec.structs.replace(SMOKE, gap=0))
    assert (changed.revision, changed.rule.gap) == (2, 0)
    await known.look()
    assert known.of(apes) == [changed]
    assert not known.of(bats)
    assert not await settings.rules(bats)
    for foreign in (settings.change_rule(bats, made.id, SMOKE), settings.remove_rule(bats, made.id)):
        with pytest.raises(NotFound, match="no such rule"):
            await foreign
    other = await settings.add_rule(apes, msgspec.structs.replace(SMOKE, name="night"))
    with pytest.raises(Conflict, match="has a rule 'night' already"):
        await settings.change_rule(apes, made.id, other.rule)
    await settings.remove_rule(apes, other.id)
    await Accounts(database).delete_project("apes")
    await known.look()
    assert not known.of(apes)
    assert not await settings.rules(apes)
    with pytest.raises(NotFound, match="this project was deleted"):
        await settings.add_rule(apes, SMOKE)


async def test_known_rules_go_on_while_database_is_away(database: Database, others: list[Database]) -> None:
    apes, known = await project(database), KnownRules(database)
    good = await SqlAlarmSettings(others[0]).add_rule(apes, SMOKE)
    bad = await SqlAlarmSettings(others[0]).add_rule(apes, msgspec.structs.replace(SMOKE, name="zone"))
    async with database.writing() as connection:
        change = "UPDATE alarm_rules SET rule = replace(rule, 'Europe/Berlin', 'Europe/Atlantis') WHERE id = :id"
        await connection.execute(text(change), {"id": bad.id})
    other = await project(database, "others")
    broken = await SqlAlarmSettings(others[0]).add_rule(other, SMOKE)
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alarm_rules SET rule = '{}' WHERE id = :id"), {"id": broken.id})
    await known.look()
    off, *_ = [one.rule for one in known.of(apes) if one.id == bad.id]
    assert (off.name, off.during, off.enabled) == ("zone", None, False)
    assert [one.rule for one in await SqlAlarmSettings(database).rules(apes)] == [SMOKE, off]
    rules = known.of(apes)
    assert good in rules
    with mock.patch.object(database, "reading", side_effect=DirectoryDown("away")):
        keeper = asyncio.create_task(known.keep_looking())
        await asyncio.sleep(0.01)
        assert known.of(apes) is rules
    keeper.cancel()
    with mock.patch.object(alarm_settings, "stored_rule", side_effect=AssertionError):
        await known.look()


async def test_destinations_are_shared_by_rules(database: Database) -> None:
    clock = mock.Mock(return_value=0.0)
    apes, settings, known = await project(database), SqlAlarmSettings(database, clock), KnownDestinations(database)
    phone = await settings.add_destination(msgspec.structs.replace(PHONE, project=apes))
    assert (phone.secrets, await settings.destinations(apes)) == ((), [phone])
    with pytest.raises(Conflict, match="has a destination 'phone' already"):
        await settings.add_destination(phone)
    with pytest.raises(BadRequest, match="no destination with the id 'gone'"):
        await settings.add_rule(apes, msgspec.structs.replace(SMOKE, destinations=("gone",)))
    with pytest.raises(BadRequest, match=r"with the id 'x{60}'$"):
        await settings.add_rule(apes, msgspec.structs.replace(SMOKE, destinations=("x" * 1000,)))
    rule = await settings.add_rule(apes, msgspec.structs.replace(SMOKE, destinations=(phone.id,)))
    with pytest.raises(Conflict, match="the rule 'smoke' sends to this destination"):
        await settings.remove_destination(apes, phone.id)
    await settings.switch_off(phone.id, "it answered 410")
    assert await known.find(phone.id) == msgspec.structs.replace(phone, enabled=False, fault="it answered 410")
    await known.switch_off(phone.id, "twice")
    again = await settings.change_destination(msgspec.structs.replace(phone, options={"priority": "5"}))
    assert (
        again == await settings.destination(apes, phone.id) == msgspec.structs.replace(phone, options={"priority": "5"})
    )
    assert await known.find(phone.id) == again
    for wrong in (
        settings.rotate_secret(apes, "x"),
        settings.remove_destination("x", phone.id),
        settings.destination("x", phone.id),
    ):
        with pytest.raises(NotFound):
            await wrong
    with pytest.raises(BadRequest, match="only the secrets of webhooks"):
        await settings.rotate_secret(apes, phone.id)
    await settings.remove_rule(apes, rule.id)
    await settings.remove_destination(apes, phone.id)
    for gone in (
        settings.change_destination(phone),
        settings.switch_off(phone.id, "x"),
        settings.remove_destination(apes, phone.id),
    ):
        with pytest.raises(NotFound, match="no such destination"):
            await gone
    assert await KnownDestinations(database).find(phone.id) is None


async def test_brokers_of_all_projects_are_those_switched_on(database: Database) -> None:
    settings, names = SqlAlarmSettings(database), ("apes", "bats")
    broker = Destination("", "", "home", "mqtt", "mqtt://broker.example.org", True, None, user="me", password="secret")
    made = [
        await settings.add_destination(msgspec.structs.replace(one, project=id))
        for id in [await project(database, name) for name in names]
        for one in (broker, HOOK, msgspec.structs.replace(broker, name="off", enabled=False))
    ]
    found = await KnownDestinations(database).brokers()
    assert sorted(found, key=made.index) == [made[0], made[3]]


async def test_replaced_secrets_sign_for_a_day(database: Database) -> None:
    clock = mock.Mock(return_value=0.0)
    apes, settings = await project(database), SqlAlarmSettings(database, clock)
    hook = await settings.add_destination(msgspec.structs.replace(HOOK, project=apes))
    (first,) = hook.secrets
    assert first.startswith("whsec_")
    hook = await settings.rotate_secret(apes, hook.id)
    assert hook.secrets[1:] == (first,)
    clock.return_value = DAY_MS / 2000
    third = await settings.rotate_secret(apes, hook.id)
    assert third.secrets[1:] == hook.secrets
    clock.return_value = DAY_MS / 1000
    assert (await settings.destination(apes, hook.id)).secrets == third.secrets[:2]
    with (
        mock.patch.object(alarm_settings, "MOST_SECRETS", 2),
        pytest.raises(Conflict, match="2 secrets of this destination still sign"),
    ):
        await settings.rotate_secret(apes, hook.id)


async def test_rules_and_destinations_are_capped_under_concurrency(database: Database, others: list[Database]) -> None:
    apes = await project(database)
    stores = [SqlAlarmSettings(one) for one in (database, *others)]
    with mock.patch.multiple(alarm_settings, MOST_RULES=2, MOST_DESTINATIONS=1):
        rules = [store.add_rule(apes, msgspec.structs.replace(SMOKE, name=str(n))) for n, store in enumerate(stores)]
        hooks = [
            store.add_destination(msgspec.structs.replace(HOOK, project=apes, name=str(n)))
            for n, store in enumerate(stores)
        ]
        ended = await asyncio.gather(*rules, *hooks, return_exceptions=True)
    refused = sorted(str(one) for one in ended if isinstance(one, Conflict))
    assert refused == [
        *["the project has 1 destinations, its limit: remove one"] * 3,
        *["the project has 2 rules, its limit: remove one"] * 2,
    ]
    assert len(await stores[0].rules(apes)) == 2


@SQLITE
@pytest.mark.parametrize("removal", ["change", "destination", "project"])
async def test_removed_passwords_are_erased_from_all_files(tmp_path: Path, removal: str, database: Database) -> None:
    apes, settings = await project(database), SqlAlarmSettings(database)
    phone = await settings.add_destination(msgspec.structs.replace(PHONE, project=apes))
    assert b"the-token-of-ntfy" in stored(tmp_path)
    match removal:
        case "change":
            await settings.change_destination(msgspec.structs.replace(phone, password=None))
        case "destination":
            await settings.remove_destination(apes, phone.id)
        case _:
            await Accounts(database).delete_project("apes")
    assert b"the-token-of-ntfy" not in stored(tmp_path)
