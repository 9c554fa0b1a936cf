"""Bills the audio of sessions that was analysed.

Which windows are to be written stands in the rows. A line of the ledger is a step of a session: `METER_WINDOWS`
windows, or what is left of them at the end. Steps and their audio follow from the count of windows alone, so that a
step that is written again after a crash is the same line.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from streams.folding.billing import Biller
from streams.sessions.metering import charges
from streams.sessions.store import SessionStore
from topics.ports.ledger import Charge
from topics.sessions.records import Metered

#: The pause after each transaction, in which sessions gather for the next.
GATHER_SECONDS: Final = 0.2


class SessionBiller(Biller[SessionStore, Metered]):
    """Takes sessions some at a time; what is to be billed of them stands in the rows. Loop only."""

    activity = "metering"
    batch = 200

    def due(self, id: str, store: SessionStore) -> tuple[Iterable[Charge], Metered] | None:
        """Return the lines of the windows that are not billed, and what says that they are; None where all are."""
        head, opened = store.head(id), store.opened(id)
        if head is None or opened is None or head.metered is None or not head.unmetered:
            return None
        metered = Metered(head.meterable, bool(head.predicts))
        return charges(id, opened, metered, head.metered), metered

    def named(self, billed: Mapping[str, Metered]) -> dict[str, object]:
        return {"sessions": len(billed)}

    async def gather_others(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
