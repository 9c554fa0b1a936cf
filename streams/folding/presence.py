"""Notes when a partition is served, so that its deadlines do not count the time in which it is not."""

from collections.abc import Mapping
from typing import Final, Protocol

from topics import keys, rows, service_time
from topics.service_time import Served

#: Seconds between two beats. After a crash, the time since the last row counts as absence.
BEAT_SECONDS: Final = 0.5
#: A longer time (ms) without a beat in one process was an absence: it was paused, or its log or disk was away.
GAP_MS: Final = 5000
#: Each beat of a partition with sessions becomes a row, of others one in this time (ms).
SELDOM_MS: Final = 60_000


class Rows(Protocol):
    """The rows of one partition, as in `streams.folding.head_store`."""

    def get(self, key: bytes) -> bytes | None: ...

    def write(self, changes: Mapping[bytes, bytes | None]) -> None: ...


class Presence:
    """The service time of one owned partition. Loop only."""

    def __init__(self, partition: Rows) -> None:
        self._partition = partition
        #: None before the first beat.
        self.served: Served | None = None
        self._noted = -SELDOM_MS

    def beat(self, now_ms: int, *, often: bool) -> None:
        """Note that the partition is served at a log time; raise Unavailable if the table takes no rows.

        The first beat of an owner ends an absence, which it notes once: as a row, it is the next owner's too.
        """
        before = self.served or service_time.served(self._partition.get(keys.SERVED)) or Served(now_ms)
        after = before.after(now_ms, 0 if self.served is None else GAP_MS)
        is_recent = self._noted <= after.until < self._noted + SELDOM_MS
        if often or after.absences != before.absences or not is_recent:
            self._partition.write({keys.SERVED: rows.encode(after)})
            self._noted = after.until
        self.served = after
