"""The first start: demo keys that were chosen, and fresh ones that are kept only when somebody was shown them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import text

from infra.db.accounts import Accounts
from infra.db.bootstrap import Bootstrap, FirstKeys, bootstrap, first_keys
from infra.db.database import Database
from topics import apikeys
from topics.ports.directory import Principal

CHOSEN = "project key chosen by an operator"
CHOSEN_ORG = "organization key, also chosen"


async def start(database: Database, project: str | None = None, organization: str | None = None) -> FirstKeys:
    """A start that comes as far as to show the keys."""
    return await show(database, await bootstrap(database, 0, project, organization))


async def show(database: Database, demo: Bootstrap) -> FirstKeys:
    """The end of a start."""
    async with first_keys(database, 0, demo) as keys:
        return keys


async def test_the_first_start_makes_keys_and_shows_them_once(database: Database) -> None:
    accounts = Accounts(database)
    first = await start(database)
    assert apikeys.well_formed(str(first.project))
    assert apikeys.well_formed(str(first.organization))
    (project,) = await accounts.projects("demo")
    assert await accounts.project_of(str(first.project)) == Principal(project.id, project.organization, None, 86_400)
    assert await accounts.organization_of(str(first.organization)) == project.organization
    assert await bootstrap(database, 1) == Bootstrap()
    assert await start(database) == FirstKeys()
    assert await accounts.projects() == [project]


async def test_keys_that_nobody_saw_are_replaced(database: Database) -> None:
    async def dies_while_showing(database: Database) -> FirstKeys:
        demo = await bootstrap(database, 1)
        with suppress(KeyboardInterrupt):
            async with first_keys(database, 1, demo) as keys:
                # What is shown works at once, for programs that read it.
                assert await Accounts(database).project_of(str(keys.project)) is not None
                raise KeyboardInterrupt
        return keys

    accounts = Accounts(database)
    # This start ends before it is ready; the next ones die while they show the keys.
    assert (await bootstrap(database, 0)).keyless
    lost = [await dies_while_showing(database) for _ in range(2)]
    assert lost[0] != lost[1]
    keys = await start(database)
    assert await start(database) == FirstKeys()
    assert await accounts.project_of(str(lost[1].project)) is None
    assert await accounts.project_of(str(keys.project)) is not None
    assert await accounts.organization_of(str(keys.organization)) is not None


async def test_keys_that_another_node_is_about_to_show_stay(database: Database) -> None:
    slow, fast = await bootstrap(database, 0), await bootstrap(database, 0)
    async with first_keys(database, 0, fast) as keys:
        async with first_keys(database, 0, slow) as other:
            assert other == FirstKeys()
        late = await bootstrap(database, 0)
        assert late.keyless
    async with first_keys(database, 0, late) as other:
        assert other == FirstKeys()
    assert await Accounts(database).project_of(str(keys.project)) is not None


async def test_a_key_that_is_chosen_after_a_start_that_failed_is_taken(database: Database) -> None:
    await bootstrap(database, 0)
    assert (await bootstrap(database, 1, CHOSEN)).keyless
    assert await Accounts(database).project_of(CHOSEN) is not None


async def test_a_key_that_was_rotated_meanwhile_stays(database: Database) -> None:
    await bootstrap(database, 0)
    rotated = await Accounts(database).rotate_project_key("demo")
    keys = await start(database)
    assert (keys.project, keys.organization is None) == (None, False)
    assert await Accounts(database).project_of(rotated) is not None


async def test_an_installation_without_a_demo_gets_none(database: Database) -> None:
    await Accounts(database).create_organization("Zoo")
    assert await bootstrap(database, 0) == Bootstrap()
    assert await start(database) == FirstKeys()


async def test_chosen_keys_are_taken_verbatim_and_only_once(database: Database) -> None:
    accounts = Accounts(database)
    for _ in range(2):
        assert await bootstrap(database, 0, CHOSEN, CHOSEN_ORG) == Bootstrap()
        (project,) = await accounts.projects("demo")
        assert await accounts.project_of(CHOSEN) == Principal(project.id, project.organization, None, 86_400)
        assert await accounts.organization_of(CHOSEN_ORG) == project.organization


@pytest.mark.parametrize("project", [True, False])
async def test_the_key_that_was_not_chosen_is_fresh(project: bool, database: Database) -> None:
    made = await start(database, CHOSEN if project else None, None if project else CHOSEN_ORG)
    assert (made.project is None, made.organization is None) == (project, not project)


async def test_chosen_keys_that_open_nothing_are_named(database: Database) -> None:
    accounts = Accounts(database)
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    await accounts.rotate_project_key("demo")
    rotated = await bootstrap(database, 1, CHOSEN, CHOSEN_ORG)
    assert rotated == Bootstrap(unused=("bootstrap_project_key",))
    assert await accounts.project_of(CHOSEN) is None
    other = await bootstrap(database, 2, None, "an organization key that came later")
    assert other == Bootstrap(unused=("bootstrap_org_key",))


async def test_nodes_that_start_together_make_one_project(database_url: str, database: Database) -> None:
    others = [Database(database_url) for _ in range(3)]
    nodes = [database, *others]
    demos = await asyncio.gather(*(bootstrap(node, 0) for node in nodes))
    started = await asyncio.gather(*(show(node, demo) for node, demo in zip(nodes, demos, strict=True)))
    for other in others:
        await other.close()
    assert sum(one.project is not None for one in started) == 1
    assert len(await Accounts(database).projects()) == 1


async def test_no_key_is_stored(database: Database) -> None:
    made = await start(database, organization=CHOSEN_ORG)
    async with database.reading() as connection:
        stored = str((await connection.execute(text("SELECT * FROM keys"))).all())
    assert str(made.project)[4:-4] not in stored
    assert CHOSEN_ORG[:-4] not in stored
