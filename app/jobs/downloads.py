"""How many recordings are sent at a time."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from app.http.streaming import PIECE_BYTES
from topics.errors import Unavailable

CROWDED: Final = "too many recordings are being sent"
#: Recordings that are sent at a time, and of one project: each holds a part in memory, a mebibyte.
MOST_SENT: Final = 64
MOST_OF_PROJECT: Final = 16


class Downloads:
    """Bounds the recordings that are sent at a time."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    async def bounded(self, project: str, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a project's recording in pieces of `PIECE_BYTES` at most.

        Raises:
            Unavailable: too many are sent already.
        """
        if self._sent.total() >= MOST_SENT or self._sent[project] >= MOST_OF_PROJECT:
            raise Unavailable(CROWDED, retry_after=5)
        self._sent[project] += 1
        try:
            async with aclosing(parts):
                async for part in parts:
                    for at in range(0, len(part), PIECE_BYTES):
                        yield part[at : at + PIECE_BYTES]
        finally:
            self._sent[project] -= 1
            self._sent += Counter()  # Forgets who has none.
