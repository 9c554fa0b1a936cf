"""The audio of accepted chunks: from a bounded cache while it is fresh, else from the log at its offset."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from typing import Final

from streams.folding.audio import checked_audio
from streams.log import StretchReader
from topics import record_codec
from topics.rows import AudioRow
from topics.sessions.records import Chunk

#: Audio that waits for longer is of a session that is not analysed now: a file that is not complete.
STALE_SECONDS: Final = 20.0
#: Read from the log at once, and kept of it at most.
STRETCH_BYTES: Final = 4 * 1024 * 1024
AHEAD_BYTES: Final = 32 * 1024 * 1024


class AudioCache:
    """Fresh audio in memory, bounded in bytes.

    What is analysed next is what came first, so a full cache takes nothing new rather than let the oldest go; only
    audio that nobody has asked for in a while gives way.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.size = 0
        self._clock = clock
        #: Audio and since when it is here, oldest first.
        self._chunks: dict[tuple[int, int], tuple[bytes, float]] = {}

    def put(self, partition: int, offset: int, data: bytes) -> None:
        """Keep a chunk that was just folded, if there is room."""
        if (partition, offset) in self._chunks:
            return
        now = self._clock()
        while self.size + len(data) > self.limit:
            oldest = next(iter(self._chunks.items()), None)
            if oldest is None or now - oldest[1][1] < STALE_SECONDS:
                return
            self.drop(*oldest[0])
        self._chunks[partition, offset] = data, now
        self.size += len(data)

    def get(self, partition: int, offset: int) -> bytes | None:
        """Return a chunk that is still here."""
        entry = self._chunks.get((partition, offset))
        return None if entry is None else entry[0]

    def drop(self, partition: int, offset: int) -> None:
        """Forget a chunk that is analysed; allowed twice."""
        entry = self._chunks.pop((partition, offset), None)
        if entry is not None:
            self.size -= len(entry[0])

    def forget(self, partitions: Container[int]) -> None:
        """Forget what is of partitions that went away."""
        for key in [key for key in self._chunks if key[0] in partitions]:
            self.drop(*key)


class AudioSource:
    """Reads chunks by their rows, from the cache or the log.

    What is not in the cache is read from the log in stretches: the records behind the one that is asked for are those
    that will be asked for next, by this session or others.
    """

    def __init__(
        self, cache: AudioCache, log: StretchReader, needed: Callable[[int, int], bool] = lambda partition, offset: True
    ) -> None:
        """Read from `cache` and `log`; `needed` says whether a record of a partition will be asked for."""
        self.cache = cache
        self.log = log
        self._needed = needed
        self._ahead: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._ahead_bytes = 0
        self._reading: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, partition: int, chunks: Sequence[AudioRow]) -> AsyncGenerator[bytes, None]:
        """Yield the audio of chunk rows in order.

        Raises:
            AudioError: the log no longer has the record (older than the retention), or its bytes have changed.
            Unavailable: the log does not answer now.
        """
        for row in chunks:
            data = self.cache.get(partition, row.offset)
            if data is None:
                data = checked_audio(row, await self._from_log(partition, row.offset), _chunk_audio)
            yield data

    async def _from_log(self, partition: int, offset: int) -> bytes | None:
        """Return the value of a record, None where it is not there any more."""
        value = self._take(partition, offset)
        if value is None:
            async with self._reading[partition]:
                value = self._take(partition, offset)
                if value is None:
                    value = await self._read_ahead(partition, offset)
        return value

    async def _read_ahead(self, partition: int, offset: int) -> bytes | None:
        found: bytes | None = None
        for record in await self.log.stretch(partition, offset, STRETCH_BYTES):
            if record.offset == offset:
                found = record.value
            elif record.value is not None and self._needed(partition, record.offset):
                self._ahead[partition, record.offset] = record.value
                self._ahead_bytes += len(record.value)
        while self._ahead_bytes > AHEAD_BYTES:
            self._ahead_bytes -= len(self._ahead.popitem(last=False)[1])
        return found

    def _take(self, partition: int, offset: int) -> bytes | None:
        value = self._ahead.pop((partition, offset), None)
        if value is not None:
            self._ahead_bytes -= len(value)
        return value


def _chunk_audio(value: bytes) -> bytes | None:
    command = record_codec.decode_command(value)
    return command.data if isinstance(command, Chunk) else None
