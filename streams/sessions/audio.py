"""The audio of accepted chunks: from a bounded cache while fresh, else from the log at its offset."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from typing import Final

from streams.folding.logged_audio import checked_audio
from streams.log import RECORD_COST, StretchReader
from topics import record_codec
from topics.catalog import COMMANDS, TopicPartition
from topics.folding import AudioRow
from topics.sessions.records import Chunk

#: Audio older than this may be evicted: of files, which may never be complete, and of streams, whose model may be away.
#: Streams that are only behind must keep their audio, because it is analysed next.
STALE_SECONDS: Final = 20.0
STALE_STREAM_SECONDS: Final = 600.0
#: Bytes read from the log at once, and kept from it at most.
STRETCH_BYTES: Final = 4 * 1024 * 1024
AHEAD_BYTES: Final = 32 * 1024 * 1024

#: A partition and an offset of the command topic.
Place = tuple[int, int]


class _Held(dict[Place, tuple[bytes, float]]):
    """Bytes by their place in the log, in order of arrival, with its time; and what they take in memory. Loop only."""

    size = 0

    def hold(self, place: Place, data: bytes, now: float) -> None:
        self[place] = data, now
        self.size += len(data) + RECORD_COST

    def take(self, place: Place) -> bytes | None:
        if (entry := self.pop(place, None)) is None:
            return None
        self.size -= len(entry[0]) + RECORD_COST
        return entry[0]


class AudioCache:
    """Returns chunks by their rows, from memory or the log. Loop only.

    Keeps fresh audio within a bound. Audio is analysed in order of arrival, so a full cache rejects new audio rather
    than evict the oldest; only stale audio is evicted. Files, which are analysed once complete, are evicted in favour
    of streams. The log is read in stretches, because the records after a requested one are needed next, by this session
    or others; these have a bound of their own, so that a backlog evicts no fresh audio.
    """

    def __init__(
        self,
        limit: int,
        log: StretchReader,
        needed: Callable[[int, int], bool] = lambda partition, offset: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep `limit` bytes, with `RECORD_COST` for each chunk; `needed` tells whether a record will be requested."""
        self.limit = limit
        self.log = log
        self._needed = needed
        self._clock = clock
        self._streams, self._files = _Held(), _Held()
        #: Records read beside requested ones, not checked yet.
        self._ahead = _Held()
        self._reading: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def size(self) -> int:
        """What fresh audio takes in memory."""
        return self._streams.size + self._files.size

    def at_hand(self, partition: int, offset: int) -> bool:
        """Return whether a chunk can be had without a read of the log."""
        place = partition, offset
        return place in self._streams or place in self._files or place in self._ahead

    def put(self, partition: int, offset: int, data: bytes, *, of_file: bool = False) -> None:
        """Keep a chunk that was just folded, if there is room."""
        if self.at_hand(partition, offset):
            return
        now = self._clock()
        while self.size + len(data) + RECORD_COST > self.limit:
            if not self._evict(now, of_file):
                return
        (self._files if of_file else self._streams).hold((partition, offset), data, now)

    def _evict(self, now: float, of_file: bool) -> bool:
        """Evict the chunk that gives way to a new one; return whether there was any."""
        for chunks, patience in (
            (self._files, STALE_SECONDS if of_file else 0.0),
            (self._streams, STALE_STREAM_SECONDS),
        ):
            oldest = next(iter(chunks.items()), None)
            if oldest is not None and now - oldest[1][1] >= patience:
                chunks.take(oldest[0])
                return True
        return False

    def drop(self, partition: int, offset: int) -> None:
        """Drop a chunk that is analysed, or no longer needed. Idempotent."""
        place = partition, offset
        for chunks in (self._streams, self._files, self._ahead):
            if chunks.take(place) is not None:
                return

    def forget(self, partitions: Set[int]) -> None:
        """Drop what partitions that went away had."""
        for number in partitions:
            self._reading.pop(number, None)
        for chunks in (self._streams, self._files, self._ahead):
            for place in [place for place in chunks if place[0] in partitions]:
                chunks.take(place)

    async def chunk(self, partition: int, row: AudioRow, later: Sequence[AudioRow] = ()) -> bytes:
        """Return the audio of a chunk; `later` are chunks needed soon.

        Raises:
            AudioError: retention removed the record from the log, or its bytes have changed.
            Unavailable: the log does not answer.
        """
        place = partition, row.offset
        if (fresh := self._streams.get(place) or self._files.get(place)) is not None:
            return fresh[0]
        if (value := self._ahead.take(place)) is None:
            async with self._reading[partition]:
                if (value := self._ahead.take(place)) is None:
                    value = await self._read(partition, row, later)
        return checked_audio(row, value, _chunk_audio)

    async def _read(self, partition: int, row: AudioRow, later: Sequence[AudioRow]) -> bytes | None:
        """Return the value of a record, None if it no longer exists, and keep what was read besides."""
        found: bytes | None = None
        # All partitions' stretches fit together, so that none evicts what another's sessions need next.
        size = min(STRETCH_BYTES, AHEAD_BYTES // 2 // max(1, len(self._reading)))
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
                self._ahead.hold(place, record.value, 0.0)
        while self._ahead.size > AHEAD_BYTES:
            self._ahead.take(next(iter(self._ahead)))
        return found


def _chunk_audio(value: bytes) -> bytes | None:
    command = record_codec.decode_command(value)
    return command.data if isinstance(command, Chunk) else None
