"""Bounds the number of running uploads and their bytes on disk."""

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from app.http.holder_quota import HolderQuota, Places
from topics.errors import Unavailable
from topics.tally import Tally
from topics.turns import Holder

#: Seconds after which the client may repeat an upload that found no room.
RETRY_SECONDS: Final = 10
NO_SPACE: Final = "there is no room for uploads now: the disk must keep EARSHOT_UPLOAD_FREE_BYTES free"
NO_MORE: Final = "there is no room for uploads now: together they may take EARSHOT_UPLOAD_SPOOL_BYTES"


class UploadBounds(msgspec.Struct, frozen=True):
    """Bounds on all running uploads together."""

    #: Uploads in total, of which one organization may have half, and of one project.
    uploads: int
    project_uploads: int
    #: Bytes on disk in total, of which one organization may have half.
    spool_bytes: int
    #: Bytes that must stay free on the disk.
    free_bytes: int


class UploadQuota:
    """Counts the running uploads and, in any thread, their bytes by organization."""

    def __init__(self, directory: Path, bounds: UploadBounds, tally: Tally | None = None) -> None:
        self.directory = directory
        self.bounds = bounds
        half = max(1, bounds.uploads // 2)
        #: One for each running upload. Loop only.
        self.places = HolderQuota(
            Places(bounds.project_uploads, f"{bounds.project_uploads} of your uploads are being received"),
            Places(half, f"{half} uploads of your organization are being received"),
            Places(bounds.uploads, "too many uploads are being received"),
            RETRY_SECONDS,
            tally,
        )
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()

    @property
    def held(self) -> tuple[int, int]:
        """Number of running uploads, and their bytes on disk. Loop only."""
        with self._lock:
            return self.places.used, self._bytes.total()

    def add(self, holder: Holder, size: int) -> None:
        """Reserve bytes before they are written.

        Raises:
            Unavailable: there is no room for them; they are not counted.
        """
        bounds = self.bounds
        free = shutil.disk_usage(self.directory).free
        with self._lock:
            if self._bytes[holder.organization] + size > bounds.spool_bytes // 2:
                raise Unavailable("your uploads fill their share of the disk", RETRY_SECONDS)
            if self._bytes.total() + size > bounds.spool_bytes:
                raise Unavailable(NO_MORE, RETRY_SECONDS)
            if free - size < bounds.free_bytes:
                raise Unavailable(NO_SPACE, RETRY_SECONDS)
            self._bytes[holder.organization] += size

    def release(self, holder: Holder, size: int) -> None:
        with self._lock:
            self._bytes[holder.organization] -= size
            if not self._bytes[holder.organization]:
                del self._bytes[holder.organization]
