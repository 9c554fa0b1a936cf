"""A ledger for tests of the billers."""

from __future__ import annotations

from collections.abc import Sequence

from topics.ports.ledger import Charge


class Books:
    """A ledger that fails as told."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.lines: list[Charge] = []

    async def record(self, charges: Sequence[Charge]) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.lines.extend(charges)
