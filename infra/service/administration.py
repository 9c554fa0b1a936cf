"""The operator's actions on the control plane's database."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.db.ledger import SqlLedger
from topics.errors import NotFound
from topics.keys import is_id
from topics.ports.administration import UsageFilter, UsageTotal
from topics.ports.ledger import Charge


class SqlAdministration(Accounts):
    """Implements the port `topics.ports.administration.Administration`: accounts and their usage."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._ledger = SqlLedger(database)

    async def totals(self, period: UsageFilter) -> list[UsageTotal]:
        return await self._ledger.totals(await self._with_ids(period))

    async def lines(self, period: UsageFilter) -> AsyncGenerator[Sequence[Charge], None]:
        """Yield the single lines of the ledger in order of time, one page at a time."""
        async with aclosing(self._ledger.lines(await self._with_ids(period))) as pages:
            async for page in pages:
                yield page

    async def _with_ids(self, period: UsageFilter) -> UsageFilter:
        organization = await _id(self.find_organization, period.organization)
        project = await _id(partial(self.find_project, organization=organization), period.project)
        return UsageFilter(organization, project, period.service, period.month)


async def _id(find: Callable[[str], Awaitable[str]], reference: str | None) -> str | None:
    """Resolve a reference to an id. An unknown id may belong to something deleted, whose usage stays."""
    if reference is None:
        return None
    try:
        return await find(reference)
    except NotFound:
        if is_id(reference):
            return reference
        raise
