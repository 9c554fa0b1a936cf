"""What compaction has to leave, said in the plainest way."""

from __future__ import annotations

from collections.abc import Sequence

from streams.log import StoredRecord


def compacted(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Keep records without a key, and the last of each key."""
    return [
        record
        for index, record in enumerate(records)
        if record.key is None or all(later.key != record.key for later in records[index + 1 :])
    ]
