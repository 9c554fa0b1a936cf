"""Key look-ups: answered, rejected without a query, or failed because the store is down, always in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from infra.db import keyring
from infra.db.accounts import Accounts
from infra.db.bootstrap import CHOICES, bootstrap
from infra.db.database import Database
from infra.db.directory import CHOSEN_SECONDS, SqlDirectory
from infra.db.ledger import SqlLedger
from tests.unit.infra.conftest import AWAY
from tests.waiting import turn
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import DirectoryDown
from topics.ports.directory import Directory, Principal
from topics.ports.ledger import Charge, MeteredService

CHOSEN = "project key chosen by an operator"
CHOSEN_ORG = "organization key, also chosen"


class Silent(Database):
    """A store that never answers, not even to cancellation."""

    def __init__(self) -> None:
        self.told_to_stop = asyncio.Event()
        self.released = asyncio.Event()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told_to_stop.set()
            await self.released.wait()
            raise OSError("the line is dead") from None
        async with super().reading() as connection:
            yield connection


def directory(database: Database, timeout: float = 60.0) -> Directory:
    return SqlDirectory(database, timeout)


async def test_only_live_keys_are_accepted(database: Database) -> None:
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    accounts = Accounts(database)
    known = directory(database)
    (project,) = await accounts.projects()
    assert await known.project(CHOSEN) == Principal(project.id, project.organization, None, CHOICES)
    rotated = await accounts.rotate_project_key("demo")
    assert await known.project(CHOSEN) is None
    assert await known.project(rotated) is not None
    assert await known.organization(CHOSEN_ORG) == project.organization
    assert await known.organization(rotated) is None
    assert await known.project(CHOSEN_ORG) is None
    org_rotated = await accounts.rotate_organization_key("demo")
    assert await known.organization(CHOSEN_ORG) is None
    assert await known.organization(org_rotated) == project.organization


def test_mistyped_key_is_rejected_without_query() -> None:
    def typed(kind: KeyKind) -> str:
        key = apikeys.new(kind)
        return key[:-1] + ("0" if key[-1] != "0" else "1")

    assert asyncio.run(directory(Silent()).project(typed(KeyKind.PROJECT))) is None
    assert asyncio.run(directory(Silent()).organization(typed(KeyKind.ORGANIZATION))) is None


async def test_free_form_key_is_queried_only_if_chosen(monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    """A flood of random keys costs one query."""
    asked: list[str] = []
    look_up = Accounts.project_of

    async def counted(accounts: Accounts, key: str) -> Principal | None:
        asked.append(key)
        return await look_up(accounts, key)

    monkeypatch.setattr(Accounts, "project_of", counted)
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    now = 1000.0
    known = SqlDirectory(database, 60.0, clock=lambda: now)
    for number in range(100):
        assert await known.project(f"somebody's guess, number {number}") is None
    assert asked == []
    assert await known.project(CHOSEN) is not None
    assert asked == [CHOSEN]
    await Accounts(database).rotate_project_key("demo")
    assert await known.project(CHOSEN) is None
    now += CHOSEN_SECONDS
    assert await known.project(CHOSEN) is None
    assert asked == [CHOSEN, CHOSEN]


async def test_chosen_key_may_use_generated_key_prefix(database: Database) -> None:
    keys = "esp_testtesttesttesttest", "eso_testtesttesttesttest"
    await bootstrap(database, 0, *keys)
    known = directory(database)
    project = await known.project(keys[0])
    assert project is not None
    assert await known.organization(keys[1]) == project.organization
    rotated = await Accounts(database).rotate_project_key("demo")
    async with database.reading() as connection:
        assert apikeys.digest(rotated) not in await keyring.chosen(connection)


async def test_failing_or_unreachable_store_raises_directory_down(opened: Database) -> None:
    away = Database(AWAY)
    for ask in (directory(opened).project, directory(opened).organization, directory(away).project):
        with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
            await ask(CHOSEN)
    with pytest.raises(DirectoryDown):
        await directory(opened).exhausted(Principal("p", "o", 1))
    await away.close()


async def test_silent_store_times_out() -> None:
    store = Silent()
    with pytest.raises(DirectoryDown, match=r"^API key verification failed$"):
        await directory(store, timeout=0.01).project(CHOSEN)
    await store.told_to_stop.wait()
    store.released.set()


async def test_cancelled_caller_stops_lookup() -> None:
    store = Silent()
    caller = asyncio.create_task(directory(store).project(CHOSEN))
    await turn()
    caller.cancel()
    await store.told_to_stop.wait()
    store.released.set()


async def test_free_seconds_reset_each_month(database: Database) -> None:
    november = 1_793_491_200  # 2026-11-01T00:00:00Z
    now = float(november)
    await bootstrap(database, 0, CHOSEN)
    accounts, ledger = Accounts(database), SqlLedger(database)
    known = SqlDirectory(database, 60.0, clock=lambda: now)
    demo = await known.project(CHOSEN)
    assert demo is not None
    assert demo.free_seconds is None
    for number, (audio_ms, at) in enumerate([(9000, november - 1), (1500, november), (498, november + 86400)]):
        used = Charge(f"j{number}", MeteredService.SOUND, demo.project, "", audio_ms, "", at * 1000)
        await ledger.record([used, msgspec.structs.replace(used, job=f"k{number}", project="another")])
    assert await known.exhausted(demo) is False, "unlimited"
    await accounts.plan("demo", 2)
    demo = await known.project(CHOSEN)
    assert demo is not None
    assert demo.free_seconds == 2
    assert await known.exhausted(demo) is False, "1998 of 2000 ms"
    await ledger.record([Charge("s", MeteredService.SESSION, demo.project, "", 9000, "", november * 1000)])
    assert await known.exhausted(demo) is False, "sessions spend no free seconds"
    await ledger.record([Charge("j9", MeteredService.SPEECH, demo.project, "", 2, "", november * 1000)])
    assert await known.exhausted(demo) is True
    now = november + 30 * 86400
    assert await known.exhausted(demo) is False, "another month"
    assert await known.exhausted(msgspec.structs.replace(demo, free_seconds=0)) is True
