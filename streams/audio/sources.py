"""Sources for decoders: a file that keeps its errors, and a file read by descriptor."""

import io
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
    """A file that is open as a descriptor, read at a position of its own. One thread at a time."""

    def __init__(self, descriptor: int) -> None:
        """Start at the beginning; the caller keeps the descriptor, which others may read too."""
        self.descriptor = descriptor
        self._position = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self.descriptor, size, self._position)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file; return -1 for an impossible position."""
        if whence != io.SEEK_SET:
            # The size without fstat(2): glibc makes another system call of it, which names files.
            offset += self._position if whence == io.SEEK_CUR else os.lseek(self.descriptor, 0, io.SEEK_END)
        if not 0 <= offset < 2**62:
            return -1
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def check(self) -> None:
        """Raise the error that prevents further reading, if any."""
        os.pread(self.descriptor, 1, self._position)
