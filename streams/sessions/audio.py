"""The audio of accepted chunks: from a bounded cache while it is fresh, else from the log at its offset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from streams.folding.audio import read_log
from streams.log import RecordReader
from topics import record_codec
from topics.rows import AudioRow
from topics.sessions.records import Chunk


class AudioCache:
    """The newest audio in memory, bounded in bytes; the oldest goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def put(self, partition: int, offset: int, data: bytes) -> None:
        """Keep a chunk that was just folded."""
        if (partition, offset) in self._chunks:
            return
        self._chunks[partition, offset] = data
        self.size += len(data)
        while self.size > self.limit:
            self.size -= len(self._chunks.popitem(last=False)[1])

    def get(self, partition: int, offset: int) -> bytes | None:
        """Return a chunk that is still here."""
        return self._chunks.get((partition, offset))

    def drop(self, partition: int, offset: int) -> None:
        """Forget a chunk that is analysed; allowed twice."""
        data = self._chunks.pop((partition, offset), None)
        if data is not None:
            self.size -= len(data)


class AudioSource:
    """Reads chunks by their rows, from the cache or the log."""

    def __init__(self, cache: AudioCache, log: RecordReader) -> None:
        self.cache = cache
        self.log = log

    async def read(self, partition: int, chunks: Sequence[AudioRow]) -> AsyncGenerator[bytes, None]:
        """Yield the audio of chunk rows in order.

        Raises:
            AudioError: the log no longer has the record (older than the retention), or its bytes have changed.
        """
        for start in range(len(chunks)):
            data = self.cache.get(partition, chunks[start].offset)
            if data is None:
                async with aclosing(read_log(self.log, partition, chunks[start:], _chunk_audio)) as rest:
                    async for data in rest:
                        yield data
                return
            yield data


def _chunk_audio(value: bytes) -> bytes | None:
    command = record_codec.decode_command(value)
    return command.data if isinstance(command, Chunk) else None
