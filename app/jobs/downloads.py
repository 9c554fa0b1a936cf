"""Limits concurrent downloads of recordings."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from app.http.holder_quota import HolderQuota
from app.http.streaming import PIECE_BYTES

CROWDED: Final = "too many recordings are being sent"
#: Concurrent downloads in total, and of one project: each holds a mebibyte in memory.
MOST_SENT: Final = 64
MOST_OF_PROJECT: Final = 16


class Downloads:
    """Bounds the number of concurrent downloads."""

    def __init__(self) -> None:
        self._places = HolderQuota(MOST_OF_PROJECT, MOST_SENT, CROWDED, CROWDED, retry_after=5)

    async def bounded(self, project: str, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a project's recording in pieces of at most `PIECE_BYTES`.

        Raises:
            Unavailable: too many downloads are running.
        """
        with self._places.place(project):
            async with aclosing(parts):
                async for part in parts:
                    for at in range(0, len(part), PIECE_BYTES):
                        yield part[at : at + PIECE_BYTES]
