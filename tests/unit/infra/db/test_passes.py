"""Passes: they count as the key that they were made beside, and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from infra.db.bootstrap import bootstrap, first_keys
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.keyring import Owner
from infra.db.passes import PREFIX, SECONDS, PassSigner
from infra.service import links
from infra.service.links import OneTimeLinks
from topics.errors import DirectoryDown, NotFound
from topics.ports.directory import Principal


class House:
    """A database with its demo project, and a clock for a test to turn."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = 1000.0
        self.signer = PassSigner(b"s" * 32, lambda: self.now)
        self.directory = SqlDirectory(database, signer=self.signer, clock=lambda: self.now)
        self.links = OneTimeLinks(database, self.signer, lambda: self.now)


def tell(directory: Path, story: Callable[[House], Awaitable[None]], *, demo: bool = True) -> None:
    async def told() -> None:
        database = Database(f"sqlite+aiosqlite:///{directory / 'earshot.db'}")
        await database.migrate()
        if demo:
            async with first_keys(database, 1, await bootstrap(database, 1)):
                pass
        try:
            await story(House(database))
        finally:
            await database.close()

    asyncio.run(told())


def test_a_link_signs_in_once(tmp_path: Path) -> None:
    async def story(house: House) -> None:
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

    tell(tmp_path, story)


def test_a_link_is_good_for_ten_minutes(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        assert links.SECONDS == 600
        early, late = [str(await house.links.make()) for _ in range(2)]
        house.now += links.SECONDS - 0.1
        assert (await house.links.redeem(early)).project
        house.now += 0.1
        with pytest.raises(NotFound):
            await house.links.redeem(late)

    tell(tmp_path, story)


def test_a_link_is_not_lost_to_a_database_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        token = str(await house.links.make())

        async def away() -> Owner | None:
            raise DirectoryDown("away")

        with monkeypatch.context() as patch:
            patch.setattr(house.links, "_demo", away)
            with pytest.raises(DirectoryDown):
                await house.links.redeem(token)
        assert (await house.links.redeem(token)).project

    tell(tmp_path, story)


def test_without_a_demo_project_there_is_no_link(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        assert await house.links.make() is None

    tell(tmp_path, story, demo=False)


def test_a_demo_project_that_goes_meanwhile(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        token = str(await house.links.make())
        await house.directory._accounts.delete_project("demo")
        with pytest.raises(NotFound, match="deleted"):
            await house.links.redeem(token)

    tell(tmp_path, story)


async def _passed(house: House) -> str:
    return str((await house.links.redeem(str(await house.links.make()))).project)


def test_a_pass_ends_by_itself(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        passed = await _passed(house)
        house.now += SECONDS - 1
        assert await house.directory.project(passed)
        house.now += 1
        assert await house.directory.project(passed) is None

    tell(tmp_path, story)


def test_a_pass_ends_with_its_key(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        passed = await _passed(house)
        await house.directory._accounts.rotate_project_key("demo")
        assert await house.directory.project(passed) is None
        assert await house.directory.project(await _passed(house))
        await house.directory._accounts.delete_project("demo")
        assert await house.directory.project(passed) is None

    tell(tmp_path, story)


def test_passes_cannot_be_made_up(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        passed = await _passed(house)
        for place in range(len(PREFIX), len(passed)):
            other = "A" if passed[place] != "A" else "B"
            assert house.signer.read(passed[:place] + other + passed[place + 1 :]) is None
        assert PassSigner(b"t" * 32, lambda: house.now).read(passed) is None
        for text in ("", PREFIX, passed[:-1], passed + "A", f"{passed}\n", PREFIX + "é" * 108):
            assert house.signer.read(text) is None
            assert await house.directory.project(text) is None

    tell(tmp_path, story)
