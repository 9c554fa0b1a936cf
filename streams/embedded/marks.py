"""The progress of a data directory's log and database, noted in a separate file.

A start that finds less than the file notes has lost data. The file is not synced: after a power cut it may note less
than was durable, never more.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from xxhash import xxh64_intdigest

#: Among the tables, so that restoring a backup or rebuilding the tables resets the marks too.
FILE: Final = "marks"
_NUMBERS: Final = Struct(">QQ")
_DIGEST: Final = Struct(">Q")


class Marks:
    """Notes the last group of the log and the last change of the database; 0 if unknown.

    One thread at a time. Nothing is written before `keep`, which requires the log's lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.group, self.change = _read(path)

    def keep(self) -> None:
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            self._write()

    def note_group(self, number: int) -> None:
        self.group = number
        self._write()

    def note_change(self, number: int) -> None:
        self.change = number
        self._write()

    def _write(self) -> None:
        if self._file >= 0:
            numbers = _NUMBERS.pack(self.group, self.change)
            with suppress(OSError):  # The disk is full; the next note overwrites this one.
                os.pwrite(self._file, numbers + _DIGEST.pack(xxh64_intdigest(numbers)), 0)

    def close(self) -> None:
        """Stop writing notes. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _read(path: Path) -> tuple[int, int]:
    try:
        data = path.read_bytes()
    except OSError:
        return 0, 0
    numbers, digest = data[: _NUMBERS.size], data[_NUMBERS.size :]
    if len(digest) != _DIGEST.size or _DIGEST.unpack(digest)[0] != xxh64_intdigest(numbers):
        return 0, 0
    group, change = _NUMBERS.unpack(numbers)
    return group, change
