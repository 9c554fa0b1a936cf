"""Who the speakers of a job are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Voices(Protocol):
    """Knows the registered speakers of organizations."""

    async def names(self, organization: str, speakers: int) -> Sequence[tuple[str, float]]:
        """Return for each speaker of a recording, in order of number, a name and the score of the match."""
        ...


class Unknown:
    """Knows nobody."""

    async def names(self, organization: str, speakers: int) -> Sequence[tuple[str, float]]:
        """Return `Unknown 0`, `Unknown 1`, …, with the score that stands for none."""
        return [(f"Unknown {number}", -1.0) for number in range(speakers)]
