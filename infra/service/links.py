"""Links to the dashboard that sign in once, as notebooks do it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import select

from infra.db.bootstrap import NAME
from infra.db.database import Database
from infra.db.keyring import Owner
from infra.db.passes import PassSigner
from infra.db.schema import organizations, projects
from topics import apikeys
from topics.errors import DirectoryDown, NotFound
from topics.ports.sign_ins import SignIn

SECONDS: Final = 600.0


class OneTimeLinks:
    """The port `topics.ports.sign_ins.SignIns`, for the demo project; this process alone knows its links."""

    def __init__(self, database: Database, signer: PassSigner, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._signer = signer
        self._clock = clock
        #: When each ends, by digest.
        self._open: dict[bytes, float] = {}

    async def make(self) -> str | None:
        """Return the token of a new link, None where there is no demo project."""
        if await self._demo() is None:
            return None
        token = secrets.token_urlsafe(24)
        self._open[apikeys.digest(token)] = self._clock() + SECONDS
        return token

    async def redeem(self, token: str) -> SignIn:
        """Return passes of the demo project and its organization; the link is used up."""
        digest = apikeys.digest(token)
        end = self._open.pop(digest, 0.0)
        if self._clock() >= end:
            raise NotFound("this link was used already, or is older than ten minutes")
        try:
            owner = await self._demo()
            if owner is None:
                raise NotFound("the project of this link was deleted")
            async with self._database.reading() as connection:
                passes = [await self._signer.issue(connection, one) for one in (owner, Owner(owner.organization))]
        except DirectoryDown:
            self._open[digest] = end
            raise
        return SignIn(*passes)

    async def _demo(self) -> Owner | None:
        query = (
            select(organizations.c.id, projects.c.id)
            .join_from(projects, organizations)
            .where(organizations.c.name == NAME, projects.c.name == NAME)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else Owner(*row)
