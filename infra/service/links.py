"""Links to the dashboard that sign in once, as notebooks do it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import select

from infra.db import tokens
from infra.db.bootstrap import NAME
from infra.db.database import Database
from infra.db.keyring import Owner
from infra.db.schema import organizations, projects
from infra.db.tokens import Purpose
from topics.apikeys import KeyKind
from topics.errors import NotFound
from topics.ports.sign_ins import SignIn

ENDED: Final = "this link was used already, or is older than ten minutes"


class OneTimeLinks:
    """The port `topics.ports.sign_ins.SignIns`, for the demo project; any node takes the link of another."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def make(self) -> str | None:
        """Return the token of a new link, None where there is no demo project or it has no key."""
        owner = await self._demo()
        if owner is None:
            return None
        async with self._database.writing() as connection:
            return await tokens.issue(connection, Purpose.LINK, owner, self._now())

    async def redeem(self, token: str) -> SignIn:
        """Return passes of the link's project and its organization; the link is used up."""
        now = self._now()
        # A flood of made-up links does not wait for those who write.
        async with self._database.reading() as connection:
            owner = await tokens.owner_of(connection, Purpose.LINK, token, now)
        if owner is None:
            raise NotFound(ENDED)
        async with self._database.writing() as connection:
            if not await tokens.end(connection, Purpose.LINK, token):
                raise NotFound(ENDED)
            owners = owner, Owner(owner.organization)
            return SignIn(*[await tokens.issue(connection, Purpose.PASS, one, now) for one in owners])

    async def end(self, passed: str) -> None:
        """End a pass; other text is ignored."""
        if passed.startswith(KeyKind.PASS):
            async with self._database.writing() as connection:
                await tokens.end(connection, Purpose.PASS, passed)

    def _now(self) -> int:
        return int(self._clock() * 1000)

    async def _demo(self) -> Owner | None:
        query = (
            select(organizations.c.id, projects.c.id)
            .join_from(projects, organizations)
            .where(organizations.c.name == NAME, projects.c.name == NAME)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else Owner(*row)
