"""Bounds the number of running uploads and their bytes on disk, in total and by holder."""

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from app.http.holder_quota import HolderQuota
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
    """Counts the running uploads and, in any thread, their bytes by holder, a project or an organization."""

    def __init__(self, directory: Path, bounds: UploadBounds) -> None:
        self.directory = directory
        self.bounds = bounds
        each_full = f"{bounds.holder_uploads} of your uploads are being received"
        full = "too many uploads are being received"
        #: One for each running upload. Loop only.
        self.places = HolderQuota(bounds.holder_uploads, bounds.uploads, each_full, full, RETRY_SECONDS)
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()

    @property
    def held(self) -> tuple[int, int]:
        """Number of running uploads, and their bytes on disk. Loop only."""
        with self._lock:
            return self.places.used, self._bytes.total()

    def add(self, holder: str, size: int) -> None:
        """Reserve bytes before they are written.

        Raises:
            Unavailable: there is no room for them; they are not counted.
        """
        bounds = self.bounds
        free = shutil.disk_usage(self.directory).free
        with self._lock:
            if self._bytes[holder] + size > bounds.spool_bytes // 2:
                raise Unavailable("your uploads fill their share of the disk", RETRY_SECONDS)
            if self._bytes.total() + size > bounds.spool_bytes:
                raise Unavailable(NO_MORE, RETRY_SECONDS)
            if free - size < bounds.free_bytes:
                raise Unavailable(NO_SPACE, RETRY_SECONDS)
            self._bytes[holder] += size

    def release(self, holder: str, size: int) -> None:
        with self._lock:
            self._bytes[holder] -= size
            if not self._bytes[holder]:
                del self._bytes[holder]
