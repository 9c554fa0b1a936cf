"""Erasure: rewrite the files of a RocksDB that hold deleted bytes, and no others.

RocksDB keeps the bytes of a deleted row until it rewrites their file, which on a quiet database may never happen. So
the database notes where rows were deleted, in rows of its own that a restart does not lose. From time to time it
rewrites the files of these ranges.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rocksdict import BottommostLevelCompaction, CompactOptions, Rdict

#: More ranges are noted as one, the whole database: some 400 KB of memory.
MOST_RANGES: Final = 4096
#: After every key with the same beginning.
_AFTER: Final = b"\xff" * 64
#: Keys of notes begin with this, above all other keys, and a round's number.
NOTED: Final = b"\xff" * 8
_ROUND_BYTES: Final = 4
_PLACE: Final = len(NOTED) + _ROUND_BYTES


class Deletions:
    """Notes the beginnings of deleted keys as rows: `NOTED`, round, beginning. Any thread.

    A round erases what was noted before it began.
    """

    def __init__(self, length: int, rows: Iterable[bytes] = ()) -> None:
        """Note the first `length` bytes of keys; `rows` are those of earlier rounds."""
        self._length = length
        rounds = (int.from_bytes(row[len(NOTED) : _PLACE], "big") for row in rows)
        self._round = max(rounds, default=0) + 1
        self._noted: set[bytes] = set()

    def note(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes]:
        """Return the rows to put in the write that deletes `keys`. If the write fails, call `forget`."""
        length, noted = self._length, self._noted
        new = {start for key in keys if (start := key[:length]) not in noted}
        if not new or b"" in noted:
            return {}
        if len(noted) + len(new) > MOST_RANGES:
            new = {b""}
        noted |= new
        number = self._round.to_bytes(_ROUND_BYTES, "big")
        return {NOTED + number + start: b"" for start in new}

    def forget(self) -> None:
        """Note everything again that is deleted from now on."""
        self._noted = set()

    def begin(self) -> None:
        """Begin a round. Not during a write."""
        self._round += 1
        self.forget()

    def starts(self, rows: Iterable[bytes]) -> set[bytes]:
        """Return the beginnings of keys in noted rows."""
        return {row[_PLACE:] for row in rows}


def rewrite(rocks: Rdict, starts: Collection[bytes], stopped: Callable[[], bool] = lambda: False) -> bool:
    """Rewrite the files that may hold deleted rows of keys with these beginnings. Slow, for a worker thread.

    Return False if `stopped` ended it. Large values in blob files stay. RocksDB's exceptions pass through.
    """
    if not starts or stopped():
        return not starts
    rocks.flush()
    files = rocks.live_files()
    newest = max(map(_number, files), default=0)
    options = CompactOptions()
    # By default, a file may move down unchanged, with its deleted rows.
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    ranges = [(start, start + _AFTER) for start in sorted(starts)]
    if b"" in starts:  # One file after the other, so that it can be stopped.
        ranges = sorted((file["start_key"], file["end_key"]) for file in files)
    for lower, upper in ranges:
        if stopped():
            return False
        if not _is_rewritten(files, lower, upper, newest):
            rocks.compact_range(lower, upper, options)
            files = rocks.live_files()
    return True


def _is_rewritten(files: Iterable[Mapping[str, Any]], lower: bytes, upper: bytes, newest: int) -> bool:
    """Return whether the files of a range were all written after `newest`, into one level, so hold no deleted rows."""
    of_range = [file for file in files if file["start_key"] <= upper and file["end_key"] >= lower]
    levels = {file["level"] for file in of_range}
    return all(_number(file) > newest for file in of_range) and len(levels) <= 1 and 0 not in levels


def _number(file: Mapping[str, Any]) -> int:
    return int(Path(file["name"]).stem)
