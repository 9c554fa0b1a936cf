"""Tokens: sign-in links, passes and links to recordings. Each expires, and ends with its key."""

import asyncio

import pytest
from sqlalchemy import select

from infra.db import tokens
from infra.db.accounts import Accounts
from infra.db.bootstrap import bootstrap, first_keys
from infra.db.database import Database
from infra.db.directory import SqlDirectory
from infra.db.projects import SqlProjects
from infra.db.schema import tokens as table
from infra.db.tokens import SECONDS, Purpose
from infra.service.links import OneTimeLinks
from tests.unit.infra.conftest import SQLITE
from tests.unit.streams.clocks import HandClock
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import DirectoryDown, NotFound, Unauthorized
from topics.ports.directory import Principal


class House(HandClock):
    """A database with its demo project, and the clock of its users."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.accounts = Accounts(database)
        self.directory = SqlDirectory(database, 60.0, clock=self)
        self.links = OneTimeLinks(database, self)


pytestmark = SQLITE


async def shown(database: Database) -> None:
    async with first_keys(database, 1, await bootstrap(database, 1)):
        pass


@pytest.fixture
def house(loop: asyncio.Runner, database: Database) -> House:
    loop.run(shown(database))
    return House(database)


async def test_link_signs_in_once(house: House) -> None:
    token = await house.links.make()
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


async def test_links_and_passes_expire(house: House) -> None:
    assert SECONDS[Purpose.LINK] == 600
    early, late = [await house.links.make() for _ in range(2)]
    house.now += SECONDS[Purpose.LINK] - 0.1
    passed = str((await house.links.redeem(early)).project)
    house.now += 0.1
    with pytest.raises(NotFound):
        await house.links.redeem(late)
    house.now += SECONDS[Purpose.PASS] - 1.1
    assert await house.directory.project(passed)
    house.now += 1
    assert await house.directory.project(passed) is None


async def test_link_survives_database_outage(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    token = await house.links.make()

    async def away(*arguments: object) -> str | None:
        raise DirectoryDown("away")

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "issue", away)
        with pytest.raises(DirectoryDown):
            await house.links.redeem(token)
    assert (await house.links.redeem(token)).project


async def test_link_requires_demo_project_with_key(database: Database) -> None:
    with pytest.raises(NotFound):
        await House(database).links.make()
    await bootstrap(database, 1)
    with pytest.raises(NotFound, match="earshot key rotate demo"):
        await House(database).links.make()


async def test_link_signs_in_to_named_project_while_it_is_there(house: House) -> None:
    await house.accounts.create_organization("Zoo")
    project, _ = await house.accounts.create_project("apes", "Zoo")
    token, late = [await house.links.make("apes") for _ in range(2)]
    passes = await house.links.redeem(token)
    assert await house.directory.project(str(passes.project)) == Principal(project.id, project.organization)
    assert await house.directory.organization(str(passes.organization)) == project.organization
    await house.accounts.delete_project("apes")
    with pytest.raises(NotFound):
        await house.links.redeem(late)


async def _passed(house: House) -> str:
    return str((await house.links.redeem(await house.links.make())).project)


async def test_pass_ends_with_its_key(house: House) -> None:
    passed = await _passed(house)
    await house.accounts.rotate_project_key("demo")
    assert await house.directory.project(passed) is None
    assert await house.directory.project(await _passed(house))
    await house.accounts.delete_project("demo")
    assert await house.directory.project(passed) is None


async def test_pass_cannot_renew_key(house: House) -> None:
    passed = await _passed(house)
    with pytest.raises(Unauthorized):
        await SqlProjects(house.database).renew_key(passed)
    assert await house.directory.project(passed)


async def test_signing_out_ends_only_the_pass(house: House) -> None:
    key = await house.accounts.rotate_project_key("demo")
    one, other = await _passed(house), await _passed(house)
    for text in (one, key, "pass_", ""):
        await house.links.end(text)
    assert await house.directory.project(one) is None
    assert await house.directory.project(other)
    assert await house.directory.project(key)


async def test_concurrent_redeems_of_link_succeed_once(house: House) -> None:
    token = await house.links.make()
    ended = await asyncio.gather(*(house.links.redeem(token) for _ in range(2)), return_exceptions=True)
    assert sorted(type(one).__name__ for one in ended) == ["NotFound", "SignIn"]


async def test_tokens_work_only_for_their_purpose(house: House) -> None:
    link, passed = await house.links.make(), await _passed(house)
    audio = str(await house.directory.link_audio(passed, "job"))
    for text in (link, audio):
        assert await house.directory.project(text) is None
        assert await house.directory.organization(text) is None
    for text in (link, passed, "audio_", ""):
        assert await house.directory.audio_link(text) is None
    for text in (passed, audio):
        with pytest.raises(NotFound):
            await house.links.redeem(text)


async def test_audio_link_expires_and_ends_with_key(house: House) -> None:
    key = await house.accounts.rotate_project_key("demo")
    principal = await house.directory.project(key)
    assert principal is not None
    early, late = [str(await house.directory.link_audio(one, "job")) for one in (key, await _passed(house))]
    opened = await house.directory.audio_link(early)
    assert opened is not None
    assert (opened.project, opened.job, opened.ends_at) == (principal.project, "job", (1000 + 3600) * 1000)
    house.now += 3600
    assert await house.directory.audio_link(early) is None
    house.now -= 1
    await house.accounts.rotate_project_key("demo")
    assert await house.directory.audio_link(late) is None


async def test_ended_key_makes_no_audio_link(house: House) -> None:
    """An edge accepts it for up to a minute. A link would be an hour long, and bound to the new key."""
    key = await house.accounts.rotate_project_key("demo")
    passed, signed_out = await _passed(house), await _passed(house)
    assert await house.directory.link_audio(passed, "job")
    await house.links.end(signed_out)
    assert await house.directory.link_audio(signed_out, "job") is None
    new = await house.accounts.rotate_project_key("demo")
    for ended in key, passed, "", "esp_", str(await house.links.make()):
        assert await house.directory.link_audio(ended, "job") is None
    assert await house.directory.link_audio(new, "job")
    await house.accounts.delete_project("demo")
    assert await house.directory.link_audio(new, "job") is None


async def test_stored_digests_grant_no_access(house: House) -> None:
    passed = await _passed(house)
    async with house.database.reading() as connection:
        digests = list(await connection.scalars(select(table.c.digest)))
    assert apikeys.digest(passed) in digests
    for digest in digests:
        for text in (digest.hex(), KeyKind.PASS + digest.hex(), digest.decode("latin-1")):
            assert await house.directory.project(text) is None


async def test_old_tokens_are_evicted(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    monkeypatch.setattr(tokens, "MOST", 3)
    links = []
    for _ in range(5):
        links.append(await house.links.make())
        house.now += 1
    async with house.database.reading() as connection:
        assert len(list(await connection.scalars(select(table.c.digest)))) == 3
    with pytest.raises(NotFound):
        await house.links.redeem(links[1])
    assert (await house.links.redeem(links[2])).project
    house.now += max(SECONDS.values())
    await house.links.make()
    async with house.database.reading() as connection:
        assert len(list(await connection.scalars(select(table.c.digest)))) == 1
