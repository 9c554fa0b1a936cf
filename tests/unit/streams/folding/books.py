"""A ledger for tests of the billers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streams.agents import NodeApp, bill
from streams.folding.billing import Biller
from tests.unit.streams.agents import Agents
from topics.ports.ledger import Charge


class Books:
    """A ledger that fails on request."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.lines: list[Charge] = []

    async def record(self, charges: Sequence[Charge]) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.lines.extend(charges)


@asynccontextmanager
async def billing(app: NodeApp, biller: Biller[Any, Any], *ids: str) -> AsyncIterator[None]:
    """Let an agent bill these ids during the body."""
    bill(app, "bill", biller)
    biller.ready.add(ids)
    async with Agents(app) as agents:
        yield
    assert agents.crashes == []
