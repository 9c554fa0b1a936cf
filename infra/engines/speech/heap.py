"""Controls how the process that recognises speech keeps and frees its memory."""

import ctypes
from typing import Final

#: Environment of such a process. A piece allocates and frees 150 MB of arrays, the largest 70 MB. By default glibc gets
#: them from the kernel each time, page by page, which takes a quarter of the processor time. With these settings they
#: stay until `trim`; other C libraries ignore them.
KEPT_HEAP: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


def trim() -> None:
    """Return freed memory from glibc to the kernel (malloc_trim(3)); other C libraries keep little."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
