"""Bounds the number of running uploads and their bytes on disk, in total and by holder."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from topics.errors import Unavailable

#: Seconds after which the client may repeat an upload that found no room.
RETRY_SECONDS: Final = 10
NO_SPACE: Final = "there is no room for uploads now: the disk must keep EARSHOT_UPLOAD_FREE_BYTES free"
NO_MORE: Final = "there is no room for uploads now: together they may take EARSHOT_UPLOAD_SPOOL_BYTES"


class UploadBounds(msgspec.Struct, frozen=True):
    """Bounds on all running uploads together."""

    #: Uploads in total, and of one holder.
    uploads: int = 256
    holder_uploads: int = 64
    #: Bytes on disk in total; one holder may have half of them.
    spool_bytes: int = 32 * 1024**3
    #: Bytes that must stay free on the disk.
    free_bytes: int = 256 * 1024**2


class UploadQuota:
    """Counts the running uploads and their bytes by holder, a project or an organization. Any thread."""

    def __init__(self, directory: Path, bounds: UploadBounds) -> None:
        self.directory = directory
        self.bounds = bounds
        self._lock = threading.Lock()
        self._uploads: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @property
    def held(self) -> tuple[int, int]:
        """Number of running uploads, and their bytes on disk."""
        with self._lock:
            return self._uploads.total(), self._bytes.total()

    @contextmanager
    def place(self, holder: str) -> Iterator[None]:
        """Hold a place for one upload.

        Raises:
            Unavailable: no place is left; nothing of the upload was read.
        """
        bounds = self.bounds
        with self._lock:
            if self._uploads[holder] >= bounds.holder_uploads:
                raise Unavailable(f"{bounds.holder_uploads} of your uploads are being received", RETRY_SECONDS)
            if self._uploads.total() >= bounds.uploads:
                raise Unavailable("too many uploads are being received", RETRY_SECONDS)
            self._uploads[holder] += 1
        try:
            yield
        finally:
            self._take(self._uploads, holder, 1)

    def add(self, holder: str, size: int) -> None:
        """Reserve bytes before they are written.

        Raises:
            Unavailable: there is no room for them; they are not counted.
        """
        bounds = self.bounds
        space = os.statvfs(self.directory)
        with self._lock:
            if self._bytes[holder] + size > bounds.spool_bytes // 2:
                raise Unavailable("your uploads fill their share of the disk", RETRY_SECONDS)
            if self._bytes.total() + size > bounds.spool_bytes:
                raise Unavailable(NO_MORE, RETRY_SECONDS)
            if space.f_bavail * space.f_frsize - size < bounds.free_bytes:
                raise Unavailable(NO_SPACE, RETRY_SECONDS)
            self._bytes[holder] += size

    def release(self, holder: str, size: int) -> None:
        self._take(self._bytes, holder, size)

    def _take(self, counts: Counter[str], holder: str, count: int) -> None:
        with self._lock:
            counts[holder] -= count
            if not counts[holder]:
                del counts[holder]
