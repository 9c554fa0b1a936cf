"""What a partition's table knows about records that could not be folded: which were set aside, and where it stopped."""

from typing import Final

import msgspec

from streams.folding.head_store import above
from streams.tables.partition_rows import PartitionRows
from topics import keys

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(tuple[str, int])


class SetAside:
    """Keeps one row for each record that was set aside until no owner can fold it again, and one row for a stop.

    So each record goes to its dead-letter topic once, whoever owns the partition, and a stop lasts. Loop only.
    """

    def __init__(self, rows: PartitionRows) -> None:
        self._rows = rows
        found = rows.scan(keys.SET_ASIDE, above(keys.SET_ASIDE))
        self._records = {keys.parse_aside(key) for key, _ in found}
        value = rows.get(keys.STOPPED)
        #: Topic and offset of the record at which the partition stopped.
        self.stop: tuple[str, int] | None = None if value is None else _decoder.decode(value)

    def has(self, topic: str, offset: int) -> bool:
        return (topic, offset) in self._records

    def add(self, topic: str, offset: int) -> None:
        """Note that a record is in its dead-letter topic; after DiskFull `has` is true, and it must be added again."""
        self._records.add((topic, offset))
        self._rows.write({keys.aside_key(topic, offset): b""})

    def forget(self, positions: dict[str, int]) -> None:
        """Delete the rows of records below the noted positions: nobody folds them again."""
        passed = [(topic, offset) for topic, offset in self._records if offset < positions.get(topic, 0)]
        if passed:
            self._rows.write({keys.aside_key(*record): None for record in passed})
            self._records.difference_update(passed)

    def note_stop(self, topic: str, offset: int) -> None:
        """Note where the partition stopped. Idempotent."""
        if self.stop != (topic, offset):
            self._rows.write({keys.STOPPED: _encode((topic, offset))})
            self.stop = topic, offset

    def clear_stop(self) -> None:
        self._rows.write({keys.STOPPED: None})
        self.stop = None
