"""One-time sign-in links to the dashboard."""

from typing import Final

from sqlalchemy import select

from infra.db import tokens
from infra.db.accounts import Accounts
from infra.db.bootstrap import NAME
from infra.db.database import Store
from infra.db.keyring import Owner
from infra.db.schema import projects
from infra.db.tokens import Purpose
from topics.errors import NotFound
from topics.ports.sign_ins import SignIn

ENDED: Final = "this link was used already, or is older than ten minutes"


def dashboard_link(url: str, token: str) -> str:
    """Return the address to open in a browser. Browsers do not send the part after #, so no server logs it."""
    return f"{url.rstrip('/')}/dashboard/#/welcome/{token}"


class OneTimeLinks(Store):
    """Implements the port `topics.ports.sign_ins.SignIns`; any node accepts the links of the others."""

    async def make(self, project: str | None = None) -> str:
        """Return the token of a new link to a project, given by id or name; None means the demo project.

        Raises:
            NotFound: there is no such project, or it has no key.
            BadRequest: the name is ambiguous.
        """
        accounts = Accounts(self._database, self._clock)
        organization = await accounts.find_organization(NAME) if project is None else None
        found = await accounts.find_project(project or NAME, organization)
        async with self._database.writing() as connection:
            of = select(projects.c.organization_id).where(projects.c.id == found)
            owner = Owner(str(await connection.scalar(of)), found)
            token = await tokens.issue(connection, Purpose.LINK, owner, self._now())
        if token is None:
            raise NotFound(f"the project has no key yet: `earshot key rotate {project or NAME}` makes one")
        return token

    async def redeem(self, token: str) -> SignIn:
        """Exchange a link for session tokens of its project and organization; the link is used up."""
        now = self._now()
        # A flood of invented links does not wait for writers.
        async with self._database.reading() as connection:
            owner = await tokens.owner_of(connection, Purpose.LINK, token, now)
        if owner is None:
            raise NotFound(ENDED)
        async with self._database.writing() as connection:
            # Again, because the key may have been renewed meanwhile.
            owner = await tokens.owner_of(connection, Purpose.LINK, token, now)
            if owner is None or not await tokens.end(connection, Purpose.LINK, token):
                raise NotFound(ENDED)
            owners = owner, Owner(owner.organization)
            return SignIn(*[await tokens.issue(connection, Purpose.PASS, one, now) for one in owners])

    async def end(self, passed: str) -> bool:
        async with self._database.reading() as connection:
            if await tokens.owner_of(connection, Purpose.PASS, passed, self._now()) is None:
                return False
        async with self._database.writing() as connection:
            return await tokens.end(connection, Purpose.PASS, passed)
