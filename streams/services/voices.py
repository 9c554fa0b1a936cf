"""Who the speakers of a job are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streams.models.protocol import Floats


class Voices(Protocol):
    """Knows the registered speakers of organizations."""

    async def names(self, organization: str, voices: Sequence[Floats]) -> Sequence[tuple[str, float]]:
        """Return for each speaker of a recording, in order of number, a name and the score of the match.

        Of each there are some samples at 16 kHz, maybe none. Who is not registered is `Unknown 0`, `Unknown 1`, …, with
        the score -1.0.

        Raises:
            ServiceError: nobody can be looked up now.
        """
        ...


class Unknown:
    """Knows nobody."""

    async def names(self, organization: str, voices: Sequence[Floats]) -> Sequence[tuple[str, float]]:
        """See `strangers`."""
        return strangers(len(voices))


def strangers(count: int) -> list[tuple[str, float]]:
    """Return `Unknown 0`, `Unknown 1`, …, with the score that stands for none."""
    return [(f"Unknown {number}", -1.0) for number in range(count)]
