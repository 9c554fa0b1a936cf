"""Bills the analysed audio of sessions.

The rows tell which windows are unbilled. A ledger line is a step of a session: `METER_WINDOWS` windows, or the
remainder at the end. Steps and their audio depend only on the count of windows, so a step written again after a crash
is the same line.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from streams.folding.billing import Biller
from streams.sessions.metering import charges
from streams.sessions.store import SessionStore
from topics.ports.ledger import Charge
from topics.sessions.records import Metered

#: Pause after each transaction, to gather sessions for the next.
GATHER_SECONDS: Final = 0.2


class SessionBiller(Biller[SessionStore, Metered]):
    """Bills sessions in batches; the rows hold what is unbilled. Loop only."""

    activity = "metering"
    batch = 200

    def due(self, id: str, store: SessionStore) -> tuple[Iterable[Charge], Metered] | None:
        """Return the ledger lines of unbilled windows and the record that marks them billed; None if there are none."""
        head, opened = store.head(id), store.opened(id)
        if head is None or not head.unmetered:
            return None
        metered = Metered("ledger", head.meterable, bool(head.predicts))
        if opened is None:
            # A deletion took it, and was folded again behind windows that nobody saw before.
            return (), metered
        return charges(id, opened, metered, head.metered, head.silent), metered

    def named(self, billed: Mapping[str, Metered]) -> dict[str, object]:
        return {"sessions": len(billed)}

    async def gather_others(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
