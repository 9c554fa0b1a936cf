"""What compaction has to leave, said in the plainest way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

R = TypeVar("R", bound="tuple[int, int, bytes | None, bytes | None]")


def compacted(records: Sequence[R]) -> list[R]:
    """Keep records without a key, and the last of each key."""
    return [
        record
        for index, record in enumerate(records)
        if record[2] is None or all(later[2] != record[2] for later in records[index + 1 :])
    ]
