"""The secret of page tokens: one for all nodes, for good."""

from __future__ import annotations

import asyncio

import pytest

from infra.db.database import Database
from infra.db.secret import NODE_METADATA, token_secret
from tests.unit.infra.conftest import run


async def test_nodes_that_start_together_share_one_secret(database_url: str, database: Database) -> None:
    others = [Database(database_url) for _ in range(3)]
    found = await asyncio.gather(*(token_secret(node) for node in (database, *others)))
    for other in others:
        await other.close()
    (secret,) = {*found, await token_secret(database)}
    assert len(secret) == 32


@pytest.mark.usefixtures("database")
def test_the_secret_outlives_the_process(database_url: str) -> None:
    assert run(database_url, token_secret) == run(database_url, token_secret)


async def test_each_purpose_has_a_secret_of_its_own(database: Database) -> None:
    assert await token_secret(database) != await token_secret(database, NODE_METADATA)
