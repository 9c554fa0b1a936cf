"""What decoders read from: a file whose errors are kept, and a file by its descriptor."""

import io
import mmap
import os
from typing import BinaryIO


class GuardedSource:
    """A source for C code, through which no exception can pass: keeps the first one for `check`.

    One thread at a time.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._error: Exception | None = None
        self._size = source.seek(0, io.SEEK_END)
        source.seek(0)

    def read(self, size: int) -> bytes:
        """Read like a file; return no bytes once an error was met."""
        try:
            return b"" if self._error else self._source.read(size)
        except Exception as error:
            self._error = error
            return b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; return -1 for an impossible position, to which a damaged header may lead."""
        try:
            position = offset + (0, self._source.tell(), self._size)[whence]
            return self._source.seek(position) if 0 <= position < 2**62 else -1
        except Exception as error:
            self._error = error
            return -1

    def tell(self) -> int:
        return self._source.tell()

    def check(self) -> None:
        """Raise the error that was kept, if any."""
        if self._error is not None:
            raise self._error


class DescriptorSource:
    """A file that libsndfile reads by its descriptor, without calls into Python. One thread at a time."""

    def __init__(self, descriptor: int, beginning: mmap.mmap | None = None) -> None:
        """Start at the beginning. The caller keeps the descriptor.

        `beginning` is a memory with the file's first bytes, if they may be changed.
        """
        self.descriptor = descriptor
        self._beginning = beginning
        self.seek(0)

    def replace(self, beginning: bytes) -> bool:
        """Replace bytes at the beginning of the file; return False if they may not be changed."""
        if self._beginning is None or not beginning:
            return False
        self._beginning[: len(beginning)] = beginning
        return True

    def read(self, size: int) -> bytes:
        return os.read(self.descriptor, size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; -1 for an impossible position."""
        try:
            return os.lseek(self.descriptor, offset, whence)
        except OSError:
            return -1

    def tell(self) -> int:
        return os.lseek(self.descriptor, 0, io.SEEK_CUR)

    def check(self) -> None:
        """Raise the error that keeps the file from being read further, if any; libsndfile no longer names it."""
        os.pread(self.descriptor, 1, self.tell())
