"""Limits concurrent downloads of recordings."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from app.http.streaming import PIECE_BYTES
from topics.errors import Unavailable

CROWDED: Final = "too many recordings are being sent"
#: Concurrent downloads in total, and of one project: each holds a mebibyte in memory.
MOST_SENT: Final = 64
MOST_OF_PROJECT: Final = 16


class Downloads:
    """Bounds the number of concurrent downloads."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    async def bounded(self, project: str, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a project's recording in pieces of at most `PIECE_BYTES`.

        Raises:
            Unavailable: too many downloads are running.
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
            self._sent += Counter()  # Drops zero counts.
