"""Organizations, projects, their keys, and the demo project of the first start."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from infra.db.accounts import Accounts
from infra.db.bootstrap import bootstrap
from infra.db.database import Database
from topics import apikeys
from topics.apikeys import KeyKind
from topics.errors import BadRequest, NotFound
from topics.ports.administration import Organization, Project
from topics.ports.directory import Principal

T = TypeVar("T")

CHOSEN = "project key chosen by an operator"
CHOSEN_ORG = "organization key, also chosen"


@pytest.fixture
def accounts(database: Database) -> Accounts:
    return Accounts(database, clock=lambda: 1.5)


async def test_an_organization_with_projects(accounts: Accounts) -> None:
    organization, org_key = await accounts.create_organization("Zoo")
    apes, apes_key = await accounts.create_project("apes", "Zoo")
    bats, bats_key = await accounts.create_project("bats", organization.id)
    assert await accounts.organizations() == [organization]
    assert await accounts.projects() == await accounts.projects("Zoo") == [apes, bats]
    assert organization == Organization(organization.id, "Zoo", 1500, f"eso_…{org_key[-4:]}")
    assert apes == Project(apes.id, "apes", organization.id, 1500, f"esp_…{apes_key[-4:]}")
    assert await accounts.project_of(bats_key) == Principal(bats.id, organization.id)
    assert await accounts.organization_of(org_key) == organization.id


async def test_a_key_speaks_for_one_kind_only(accounts: Accounts) -> None:
    _, org_key = await accounts.create_organization("Zoo")
    _, key = await accounts.create_project("apes")
    assert await accounts.project_of(org_key) is None
    assert await accounts.organization_of(key) is None
    assert await accounts.project_of(apikeys.new(KeyKind.PROJECT)) is None


async def test_rotation_revokes_the_old_key(accounts: Accounts) -> None:
    organization, org_key = await accounts.create_organization("Zoo")
    project, key = await accounts.create_project("apes")
    rotated, org_rotated = await accounts.rotate_project_key("apes"), await accounts.rotate_organization_key("Zoo")
    assert await accounts.project_of(key) is None
    assert await accounts.organization_of(org_key) is None
    assert await accounts.project_of(rotated) == Principal(project.id, organization.id)
    assert await accounts.organization_of(org_rotated) == organization.id
    assert [one.key for one in await accounts.projects()] == [apikeys.redact(rotated)]
    assert [one.key for one in await accounts.organizations()] == [apikeys.redact(org_rotated)]


async def test_rotations_at_once_leave_one_live_key(accounts: Accounts) -> None:
    await accounts.create_organization("Zoo")
    await accounts.create_project("apes")
    keys = await asyncio.gather(*(accounts.rotate_project_key("apes") for _ in range(4)))
    assert sum([await accounts.project_of(key) is not None for key in keys]) == 1


@pytest.mark.parametrize("kind", ["project", "organization"])
async def test_the_database_itself_refuses_a_second_live_key(database: Database, kind: str) -> None:
    await bootstrap(database, 0, CHOSEN, CHOSEN_ORG)
    project = "project_id" if kind == "project" else "NULL"
    statement = (
        "INSERT INTO keys (id, organization_id, project_id, digest, shown, created_at)"
        f" SELECT 99, organization_id, {project}, '\\x01', '', 0 FROM keys WHERE project_id IS NOT NULL"
    )
    with pytest.raises(IntegrityError, match=r"live|UNIQUE"):
        async with database.writing() as connection:
            await connection.execute(text(statement))


async def test_deletion_takes_keys_along(accounts: Accounts) -> None:
    _, org_key = await accounts.create_organization("Zoo")
    keys = [(await accounts.create_project(name))[1] for name in ("apes", "bats")]
    await accounts.delete_project("apes")
    assert [await accounts.project_of(key) is None for key in keys] == [True, False]
    await accounts.delete_organization("Zoo")
    assert [await accounts.project_of(key) is None for key in keys] == [True, True]
    assert await accounts.organization_of(org_key) is None
    assert (await accounts.projects(), await accounts.organizations()) == ([], [])


async def test_names_that_mean_several_or_none(accounts: Accounts) -> None:
    with pytest.raises(NotFound, match="no organization yet"):
        await accounts.create_project("apes")
    zoo, _ = await accounts.create_organization("Zoo")
    await accounts.create_organization("Park")
    for organization in "Zoo", "Park":
        await accounts.create_project("apes", organization)
    with pytest.raises(BadRequest, match="say which organization"):
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


async def test_a_name_is_taken_once(accounts: Accounts) -> None:
    await accounts.create_organization("Zoo")
    await accounts.create_project("apes")
    with pytest.raises(BadRequest, match="organization 'Zoo' exists already"):
        await accounts.create_organization("Zoo")
    with pytest.raises(BadRequest, match="project 'apes' exists already"):
        await accounts.create_project("apes")
    assert len(await accounts.organizations()) == len(await accounts.projects()) == 1


@pytest.mark.parametrize("name", ["", "n" * 41, " apes", "apes\n", "a\x00b"])
async def test_names_that_are_none(name: str, accounts: Accounts) -> None:
    with pytest.raises(BadRequest, match="1 to 40 printable"):
        await accounts.create_organization(name)
    await accounts.create_organization("n" * 40)
    with pytest.raises(BadRequest, match="1 to 40 printable"):
        await accounts.create_project(name)


async def test_a_plan(accounts: Accounts) -> None:
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
