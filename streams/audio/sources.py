"""Sources for decoders: a file that keeps its errors, and a file read by descriptor."""

import io
import mmap
import os
from typing import BinaryIO


class GuardedSource:
    """Keeps a source's first exception for `check`, because none can pass through C code. One thread at a time."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._error: Exception | None = None
        self._size = source.seek(0, io.SEEK_END)
        source.seek(0)

    def read(self, size: int) -> bytes:
        """Read like a file; return no bytes after an error."""
        try:
            return b"" if self._error else self._source.read(size)
        except Exception as error:
            self._error = error
            return b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; return -1 for an impossible position, which a damaged header can cause."""
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
    """A file that libsndfile reads by descriptor, without calls into Python. One thread at a time."""

    def __init__(self, descriptor: int, beginning: mmap.mmap | None = None) -> None:
        """Start at the beginning; the caller keeps the descriptor.

        `beginning` maps the file's first bytes if they may be changed.
        """
        self.descriptor = descriptor
        self._beginning = beginning
        self.seek(0)

    def replace(self, beginning: bytes) -> bool:
        """Replace the file's first bytes; return False if they may not be changed."""
        if self._beginning is None or not beginning:
            return False
        self._beginning[: len(beginning)] = beginning
        return True

    def read(self, size: int) -> bytes:
        return os.read(self.descriptor, size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; return -1 for an impossible position."""
        try:
            return os.lseek(self.descriptor, offset, whence)
        except OSError:
            return -1

    def tell(self) -> int:
        return os.lseek(self.descriptor, 0, io.SEEK_CUR)

    def check(self) -> None:
        """Raise the error that prevents further reading, if any; libsndfile does not report it."""
        os.pread(self.descriptor, 1, self.tell())
