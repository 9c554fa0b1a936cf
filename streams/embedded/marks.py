"""How far the log and the database of a data directory had come: noted in a file that belongs to neither of them.

A start that finds less than is noted here has lost something. The file is not synced: after a power cut it may note
less than there was, never more than was durable.
"""

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from xxhash import xxh64_intdigest

#: Among the tables: who puts a backup back, or has the tables made anew, has these made anew too.
FILE: Final = "marks"
_NUMBERS: Final = Struct(">QQ")
_DIGEST: Final = Struct(">Q")


class Marks:
    """The last group of the log, and the number of the last change of the database; 0 where nothing is known.

    One thread at a time. Nothing is written before `keep`, for which the log must be locked.
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
            with suppress(OSError):  # A full disk: the next note is written in place.
                os.pwrite(self._file, numbers + _DIGEST.pack(xxh64_intdigest(numbers)), 0)

    def close(self) -> None:
        """Note nothing more; allowed twice."""
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
