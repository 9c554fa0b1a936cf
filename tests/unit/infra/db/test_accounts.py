"""Organizations, projects, their keys, and the demo project of the first start."""

import asyncio
import re
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from infra.db.accounts import Accounts
from infra.db.bootstrap import CHOICES, Bootstrap, FirstKeys, bootstrap, first_keys
from infra.db.database import Database
from infra.db.schema import metadata
from infra.db.secret import NODE_METADATA, token_secret
from infra.errors import WrongSetting
from topics import apikeys
from topics.errors import BadRequest, NotFound
from topics.ports.administration import Organization, Project
from topics.ports.directory import Principal

CHOSEN = "project key chosen by an operator"
CHOSEN_ORG = "organization key, also chosen"


@pytest.fixture
def accounts(database: Database) -> Accounts:
    return Accounts(database, clock=lambda: 1.5)


async def test_organization_and_projects_are_created(accounts: Accounts) -> None:
    organization, org_key = await accounts.create_organization("Zoo")
    apes, apes_key = await accounts.create_project("apes", "Zoo")
    bats, bats_key = await accounts.create_project("bats", organization.id)
    assert await accounts.organizations() == [organization]
    assert await accounts.projects() == await accounts.projects("Zoo") == [apes, bats]
    assert organization == Organization(organization.id, "Zoo", 1500, f"eso_…{org_key[-4:]}")
    assert apes == Project(apes.id, "apes", organization.id, 1500, f"esp_…{apes_key[-4:]}")
    assert await accounts.project_of(bats_key) == Principal(bats.id, organization.id)
    assert await accounts.organization_of(org_key) == organization.id


async def test_concurrent_rotations_leave_one_live_key(accounts: Accounts) -> None:
    await accounts.create_organization("Zoo")
    await accounts.create_project("apes")
    keys = await asyncio.gather(*(accounts.rotate_project_key("apes") for _ in range(4)))
    assert sum([await accounts.project_of(key) is not None for key in keys]) == 1


@pytest.mark.parametrize("kind", ["project", "organization"])
async def test_database_rejects_second_live_key(database: Database, kind: str) -> None:
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    project = "project_id" if kind == "project" else "NULL"
    statement = (
        "INSERT INTO keys (id, organization_id, project_id, digest, shown, chosen, created_at)"
        f" SELECT 99, organization_id, {project}, '\\x01', '', false, 0 FROM keys WHERE project_id IS NOT NULL"
    )
    with pytest.raises(IntegrityError, match=r"live|UNIQUE"):
        async with database.writing() as connection:
            await connection.execute(text(statement))


async def test_deletion_invalidates_keys(accounts: Accounts) -> None:
    _, org_key = await accounts.create_organization("Zoo")
    keys = [(await accounts.create_project(name))[1] for name in ("apes", "bats")]
    await accounts.delete_project("apes")
    assert [await accounts.project_of(key) is None for key in keys] == [True, False]
    await accounts.delete_organization("Zoo")
    assert [await accounts.project_of(key) is None for key in keys] == [True, True]
    assert await accounts.organization_of(org_key) is None
    assert (await accounts.projects(), await accounts.organizations()) == ([], [])


async def test_ambiguous_and_unknown_names_are_rejected(accounts: Accounts) -> None:
    with pytest.raises(NotFound, match="no organization yet"):
        await accounts.create_project("apes")
    zoo, _ = await accounts.create_organization("Zoo")
    await accounts.create_organization("Park")
    for organization in "Zoo", "Park":
        await accounts.create_project("apes", organization)
    with pytest.raises(BadRequest, match=r"say which organization, by id or name \(--org\)"):
        await accounts.create_project("bats")
    with pytest.raises(BadRequest, match=r"several projects 'apes': give the id"):
        await accounts.delete_project("apes")
    with pytest.raises(NotFound, match="no project 'bats'"):
        await accounts.rotate_project_key("bats")
    for name in "Farm", "", "\0", "\udcff":
        with pytest.raises(NotFound, match=re.escape(f"no organization {name!r}")):
            await accounts.projects(name)
    (mine,) = await accounts.projects(zoo.id)
    await accounts.delete_project(mine.id)
    assert await accounts.projects("Zoo") == []


async def test_duplicate_names_are_rejected(accounts: Accounts) -> None:
    await accounts.create_organization("Zoo")
    await accounts.create_project("apes")
    with pytest.raises(BadRequest, match="organization 'Zoo' exists already"):
        await accounts.create_organization("Zoo")
    with pytest.raises(BadRequest, match="project 'apes' exists already"):
        await accounts.create_project("apes")
    assert len(await accounts.organizations()) == len(await accounts.projects()) == 1


@pytest.mark.parametrize("name", ["", "n" * 41, " apes", "apes\n", "a\x00b"])
async def test_invalid_names_are_rejected(name: str, accounts: Accounts) -> None:
    with pytest.raises(BadRequest, match="1 to 40 printable"):
        await accounts.create_organization(name)
    await accounts.create_organization("n" * 40)
    with pytest.raises(BadRequest, match="1 to 40 printable"):
        await accounts.create_project(name)


async def test_plan_sets_free_seconds(accounts: Accounts) -> None:
    await accounts.create_organization("Zoo")
    apes, key = await accounts.create_project("apes")
    for free in 1200, 0, None:
        await accounts.plan("apes", free)
        assert [one.free_seconds for one in await accounts.projects()] == [free]
        assert await accounts.project_of(key) == Principal(apes.id, apes.organization, free)
    for wrong in -1, 10**13:
        with pytest.raises(BadRequest, match="from 0 to"):
            await accounts.plan("apes", wrong)
    with pytest.raises(NotFound, match="no project 'bats'"):
        await accounts.plan("bats", 1)


async def start(database: Database, project: str | None = None, organization: str | None = None) -> FirstKeys:
    return await show(database, await bootstrap(database, 0, project, organization))


async def show(database: Database, demo: Bootstrap) -> FirstKeys:
    async with first_keys(database, 0, demo) as keys:
        return keys


async def test_first_start_shows_new_keys_once(database: Database) -> None:
    accounts = Accounts(database)
    first = await start(database)
    assert apikeys.well_formed(str(first.project))
    assert apikeys.well_formed(str(first.organization))
    (project,) = await accounts.projects("demo")
    assert await accounts.project_of(str(first.project)) == Principal(project.id, project.organization, None, CHOICES)
    assert await accounts.organization_of(str(first.organization)) == project.organization
    assert await bootstrap(database, 1) == Bootstrap()
    assert await start(database) == FirstKeys()
    assert await accounts.projects() == [project]


async def test_unseen_keys_are_replaced(database: Database) -> None:
    async def dies_while_showing(database: Database) -> FirstKeys:
        demo = await bootstrap(database, 1)
        with suppress(KeyboardInterrupt):
            async with first_keys(database, 1, demo) as keys:
                # Displayed keys work at once, for programs that read them.
                assert await Accounts(database).project_of(str(keys.project)) is not None
                raise KeyboardInterrupt
        return keys

    accounts = Accounts(database)
    # This start dies before it is ready; the next ones die while they show the keys.
    assert (await bootstrap(database, 0)).keyless
    lost = [await dies_while_showing(database) for _ in range(2)]
    assert lost[0] != lost[1]
    keys = await start(database)
    assert await start(database) == FirstKeys()
    assert await accounts.project_of(str(lost[1].project)) is None
    assert await accounts.project_of(str(keys.project)) is not None
    assert await accounts.organization_of(str(keys.organization)) is not None


async def test_node_keeps_keys_shown_by_another_node(database: Database) -> None:
    slow, fast = await bootstrap(database, 0), await bootstrap(database, 0)
    async with first_keys(database, 0, fast) as keys:
        async with first_keys(database, 0, slow) as other:
            assert other == FirstKeys()
        late = await bootstrap(database, 0)
        assert late.keyless
    async with first_keys(database, 0, late) as other:
        assert other == FirstKeys()
    assert await Accounts(database).project_of(str(keys.project)) is not None


async def test_key_chosen_after_failed_start_is_used(database: Database) -> None:
    await bootstrap(database, 0)
    assert (await bootstrap(database, 1, CHOSEN)).keyless
    assert await Accounts(database).project_of(CHOSEN) is not None


async def test_key_rotated_before_display_stays_valid(database: Database) -> None:
    await bootstrap(database, 0)
    rotated = await Accounts(database).rotate_project_key("demo")
    keys = await start(database)
    assert (keys.project, keys.organization is None) == (None, False)
    assert await Accounts(database).project_of(rotated) is not None


async def test_existing_installation_gets_no_demo_project(database: Database) -> None:
    await Accounts(database).create_organization("Zoo")
    assert await bootstrap(database, 0) == Bootstrap()
    assert await start(database) == FirstKeys()


async def test_chosen_keys_are_stored_verbatim_once(database: Database) -> None:
    accounts = Accounts(database)
    for _ in range(2):
        assert await bootstrap(database, 0, CHOSEN, CHOSEN_ORG) == Bootstrap()
        (project,) = await accounts.projects("demo")
        assert await accounts.project_of(CHOSEN) == Principal(project.id, project.organization, None, CHOICES)
        assert await accounts.organization_of(CHOSEN_ORG) == project.organization


@pytest.mark.parametrize("project", [True, False])
async def test_unchosen_key_is_generated(project: bool, database: Database) -> None:
    made = await start(database, CHOSEN if project else None, None if project else CHOSEN_ORG)
    assert (made.project is None, made.organization is None) == (project, not project)


async def test_chosen_keys_without_effect_are_reported(database: Database) -> None:
    accounts = Accounts(database)
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    await accounts.rotate_project_key("demo")
    rotated = await bootstrap(database, 1, CHOSEN, CHOSEN_ORG)
    assert rotated == Bootstrap(unused=("bootstrap_project_key",))
    assert await accounts.project_of(CHOSEN) is None
    other = await bootstrap(database, 2, None, "an organization key that came later")
    assert other == Bootstrap(unused=("bootstrap_org_key",))


@pytest.mark.parametrize("revoked", [False, True])
async def test_chosen_key_of_another_owner_is_rejected(database: Database, revoked: bool) -> None:
    await bootstrap(database, 0, CHOSEN)
    if revoked:
        await Accounts(database).rotate_project_key("demo")
    with pytest.raises(WrongSetting, match=r"^EARSHOT_BOOTSTRAP_ORG_KEY: this key is or was another owner's"):
        await bootstrap(database, 1, None, CHOSEN)


async def test_concurrent_starts_create_one_demo_project(others: list[Database], database: Database) -> None:
    nodes = [database, *others]
    demos = await asyncio.gather(*(bootstrap(node, 0) for node in nodes))
    started = await asyncio.gather(*(show(node, demo) for node, demo in zip(nodes, demos, strict=True)))
    assert sum(one.project is not None for one in started) == 1
    assert len(await Accounts(database).projects()) == 1


async def test_keys_are_not_stored_in_plaintext(database: Database) -> None:
    made = await start(database, organization=CHOSEN_ORG)
    async with database.reading() as connection:
        stored = str((await connection.execute(text("SELECT * FROM keys"))).all())
    assert str(made.project)[4:-4] not in stored
    assert CHOSEN_ORG[:-4] not in stored


async def test_concurrent_starts_share_one_secret_of_each_purpose(others: list[Database], database: Database) -> None:
    found = await asyncio.gather(*(token_secret(node) for node in (database, *others)))
    (secret,) = {*found, await token_secret(database)}
    assert len(secret) == 32
    assert secret != await token_secret(database, NODE_METADATA)


#: Usage stays for the operator's bills, and the note of a deleted project is for the nodes.
KEPT = {"usage", "deleted_projects"}


def test_all_rows_of_an_account_go_with_it() -> None:
    """A table that names a project or an organization loses its rows with it, or is named here with the reason."""
    owners = {"organization_id": "organizations", "project_id": "projects"}
    for table in metadata.sorted_tables:
        for column in table.columns:
            if (owner := owners.get(column.name)) is not None and table.name not in KEPT:
                assert [(key.column.table.name, key.ondelete) for key in column.foreign_keys] == [(owner, "CASCADE")]
        assert all(key.ondelete == "CASCADE" for key in table.foreign_keys)


async def test_deleted_projects_are_noted(accounts: Accounts) -> None:
    for name in "Zoo", "Park":
        await accounts.create_organization(name)
    apes, bats, cats = [(await accounts.create_project(name, "Zoo"))[0].id for name in ("apes", "bats", "cats")]
    await accounts.create_project("dogs", "Park")
    await accounts.delete_project("apes")
    assert await accounts.deleted_projects() == [apes]
    await accounts.delete_organization("Zoo")
    assert set(await accounts.deleted_projects()) == {apes, bats, cats}
