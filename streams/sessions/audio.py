"""The audio of accepted chunks: from a bounded cache while fresh, else from the log at its offset."""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Sequence, Set
from typing import Final

from streams.folding.logged_audio import checked_audio
from streams.log import StretchReader
from topics import record_codec
from topics.catalog import COMMANDS, TopicPartition
from topics.folding import AudioRow
from topics.sessions.records import Chunk

#: Audio older than this may be evicted: of files, which may never be complete, and of streams, whose model may be away.
#: Streams that are only behind must keep their audio, because it is analysed next.
STALE_SECONDS: Final = 20.0
STALE_STREAM_SECONDS: Final = 600.0
#: Chunks in the cache: each takes some 250 bytes besides its audio, and most chunks of a file may be a byte long.
MOST_CHUNKS: Final = 1 << 18
#: Bytes read from the log at once, and kept from it at most.
STRETCH_BYTES: Final = 4 * 1024 * 1024
AHEAD_BYTES: Final = 32 * 1024 * 1024


class AudioCache:
    """Keeps fresh audio in memory, bounded in bytes and chunks. Loop only.

    Audio is analysed in order of arrival, so a full cache rejects new audio rather than evict the oldest; only stale
    audio is evicted. Files, which are analysed once complete, are evicted in favour of streams.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.size = 0
        self._clock = clock
        #: Audio with its time of arrival, oldest first: of streams, and of files.
        self._streams: dict[tuple[int, int], tuple[bytes, float]] = {}
        self._files: dict[tuple[int, int], tuple[bytes, float]] = {}

    def put(self, partition: int, offset: int, data: bytes, *, of_file: bool = False) -> None:
        """Cache a chunk that was just folded, if there is room."""
        if (partition, offset) in self:
            return
        now = self._clock()
        while self.size + len(data) > self.limit or len(self._streams) + len(self._files) >= MOST_CHUNKS:
            oldest = self._gives_way(now, of_file)
            if oldest is None:
                return
            self.drop(*oldest)
        (self._files if of_file else self._streams)[partition, offset] = data, now
        self.size += len(data)

    def _gives_way(self, now: float, of_file: bool) -> tuple[int, int] | None:
        """Return the chunk to evict for a new one."""
        for chunks, patience in (
            (self._files, STALE_SECONDS if of_file else 0.0),
            (self._streams, STALE_STREAM_SECONDS),
        ):
            oldest = next(iter(chunks.items()), None)
            if oldest is not None and now - oldest[1][1] >= patience:
                return oldest[0]
        return None

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Return whether the chunk at a (partition, offset) is cached."""
        return place in self._streams or place in self._files

    def get(self, partition: int, offset: int) -> bytes | None:
        place = (partition, offset)
        entry = self._streams.get(place) or self._files.get(place)
        return None if entry is None else entry[0]

    def drop(self, partition: int, offset: int) -> None:
        """Drop an analysed chunk. Idempotent."""
        place = (partition, offset)
        entry = self._streams.pop(place, None) or self._files.pop(place, None)
        if entry is not None:
            self.size -= len(entry[0])

    def forget(self, partitions: Container[int]) -> None:
        for place in [place for place in (*self._streams, *self._files) if place[0] in partitions]:
            self.drop(*place)


class AudioSource:
    """Reads chunks by their rows, from the cache or the log. Loop only.

    It reads the log in stretches, because the records after a requested one are needed next, by this session or others.
    """

    def __init__(
        self, cache: AudioCache, log: StretchReader, needed: Callable[[int, int], bool] = lambda partition, offset: True
    ) -> None:
        """Read from `cache` and `log`; `needed` returns whether a record of a partition will be requested."""
        self.cache = cache
        self.log = log
        self._needed = needed
        self._ahead: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._ahead_bytes = 0
        self._reading: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def chunk(self, partition: int, row: AudioRow, later: Sequence[AudioRow] = ()) -> bytes:
        """Return the audio of a chunk; `later` are chunks needed soon.

        Raises:
            AudioError: retention removed the record from the log, or its bytes have changed.
            Unavailable: the log does not answer.
        """
        data = self.cache.get(partition, row.offset)
        if data is None:
            data = checked_audio(row, await self._from_log(partition, row, later), _chunk_audio)
        return data

    def forget(self, partitions: Set[int]) -> None:
        """Drop what was read ahead from partitions that went away."""
        for number in partitions:
            self._reading.pop(number, None)
        for place in [place for place in self._ahead if place[0] in partitions]:
            self._take(*place)

    def at_hand(self, partition: int, offset: int) -> bool:
        return (partition, offset) in self.cache or (partition, offset) in self._ahead

    async def _from_log(self, partition: int, row: AudioRow, later: Sequence[AudioRow]) -> bytes | None:
        """Return the value of a record; None if it no longer exists."""
        value = self._take(partition, row.offset)
        if value is None:
            async with self._reading[partition]:
                value = self._take(partition, row.offset)
                if value is None:
                    value = await self._read_ahead(partition, row, later)
        return value

    async def _read_ahead(self, partition: int, row: AudioRow, later: Sequence[AudioRow]) -> bytes | None:
        found: bytes | None = None
        # All partitions' stretches fit together, so that none evicts what another's sessions need next.
        size = min(STRETCH_BYTES, AHEAD_BYTES // 2 // len(self._reading))
        wanted, length = [row.offset], row.length
        for one in later:
            if (length := length + one.length) > size:
                break
            if not self.at_hand(partition, one.offset):
                wanted.append(one.offset)
        for record in await self.log.stretch(TopicPartition(COMMANDS, partition), wanted, size):
            place = (partition, record.offset)
            if record.offset == row.offset:
                found = record.value
            elif record.value is not None and not self.at_hand(*place) and self._needed(*place):
                self._ahead[place] = record.value
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
