"""The secret of page tokens: one for all nodes, for good."""

from __future__ import annotations

import asyncio

from infra.db.database import Database
from infra.db.secret import token_secret
from tests.unit.infra.conftest import run


def test_nodes_that_start_together_share_one_secret(database_url: str) -> None:
    async def story(database: Database) -> set[bytes]:
        await database.migrate()
        others = [Database(database_url) for _ in range(3)]
        found = await asyncio.gather(*(token_secret(node) for node in (database, *others)))
        for other in others:
            await other.close()
        return {*found, await token_secret(database)}

    (secret,) = run(database_url, story)
    assert len(secret) == 32


def test_the_secret_outlives_the_process(database_url: str) -> None:
    async def story(database: Database) -> bytes:
        await database.migrate()
        return await token_secret(database)

    assert run(database_url, story) == run(database_url, story)
