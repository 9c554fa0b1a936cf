"""Passes: they count as the key that they were made beside, and end with it."""

from __future__ import annotations

import asyncio

import pytest

from infra.db.bootstrap import bootstrap, first_keys
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.keyring import Owner
from infra.db.passes import PREFIX, SECONDS, PassSigner
from infra.service import links
from infra.service.links import OneTimeLinks
from tests.unit.infra.conftest import SQLITE
from topics.errors import DirectoryDown, NotFound
from topics.ports.directory import Principal


class House:
    """A database with its demo project, and a clock for a test to turn."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = 1000.0
        self.signer = PassSigner(b"s" * 32, lambda: self.now)
        self.directory = SqlDirectory(database, timeout=60.0, signer=self.signer, clock=lambda: self.now)
        self.links = OneTimeLinks(database, self.signer, lambda: self.now)


pytestmark = SQLITE


async def shown(database: Database) -> None:
    """Make the demo project, and show its keys."""
    async with first_keys(database, 1, await bootstrap(database, 1)):
        pass


@pytest.fixture
def house(loop: asyncio.Runner, database: Database) -> House:
    loop.run(shown(database))
    return House(database)


async def test_a_link_signs_in_once(house: House) -> None:
    token = await house.links.make()
    assert token is not None
    passes = await house.links.redeem(token)
    assert passes.project is not None
    assert passes.organization is not None
    principal = await house.directory.project(passes.project)
    assert isinstance(principal, Principal)
    assert await house.directory.organization(passes.organization) == principal.organization
    assert await house.directory.organization(passes.project) is None
    assert await house.directory.project(passes.organization) is None
    for again in (token, "another"):
        with pytest.raises(NotFound, match="used already, or is older"):
            await house.links.redeem(again)


async def test_a_link_is_good_for_ten_minutes(house: House) -> None:
    assert links.SECONDS == 600
    early, late = [str(await house.links.make()) for _ in range(2)]
    house.now += links.SECONDS - 0.1
    assert (await house.links.redeem(early)).project
    house.now += 0.1
    with pytest.raises(NotFound):
        await house.links.redeem(late)


async def test_a_link_is_not_lost_to_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    token = str(await house.links.make())

    async def away() -> Owner | None:
        raise DirectoryDown("away")

    with monkeypatch.context() as patch:
        patch.setattr(house.links, "_demo", away)
        with pytest.raises(DirectoryDown):
            await house.links.redeem(token)
    assert (await house.links.redeem(token)).project


async def test_without_a_demo_project_there_is_no_link(database: Database) -> None:
    assert await House(database).links.make() is None


async def test_a_demo_project_that_goes_meanwhile(house: House) -> None:
    token = str(await house.links.make())
    await house.directory._accounts.delete_project("demo")
    with pytest.raises(NotFound, match="deleted"):
        await house.links.redeem(token)


async def _passed(house: House) -> str:
    return str((await house.links.redeem(str(await house.links.make()))).project)


async def test_a_pass_ends_by_itself(house: House) -> None:
    passed = await _passed(house)
    house.now += SECONDS - 1
    assert await house.directory.project(passed)
    house.now += 1
    assert await house.directory.project(passed) is None


async def test_a_pass_ends_with_its_key(house: House) -> None:
    passed = await _passed(house)
    await house.directory._accounts.rotate_project_key("demo")
    assert await house.directory.project(passed) is None
    assert await house.directory.project(await _passed(house))
    await house.directory._accounts.delete_project("demo")
    assert await house.directory.project(passed) is None


async def test_passes_cannot_be_made_up(house: House) -> None:
    passed = await _passed(house)
    for place in range(len(PREFIX), len(passed)):
        other = "A" if passed[place] != "A" else "B"
        assert house.signer.read(passed[:place] + other + passed[place + 1 :]) is None
    assert PassSigner(b"t" * 32, lambda: house.now).read(passed) is None
    for text in ("", PREFIX, passed[:-1], passed + "A", f"{passed}\n", PREFIX + "é" * 108):
        assert house.signer.read(text) is None
        assert await house.directory.project(text) is None
