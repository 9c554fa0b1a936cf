"""How the process that recognises speech keeps and gives back the memory of its pieces."""

import ctypes
from typing import Final

#: The environment of such a process. A piece takes and frees 150 MB of arrays, the largest of 70 MB. As glibc has it
#: they come from the kernel each time, page by page: a quarter of the processor time. With this they stay until
#: `give_back`; other C libraries do not read it. Threads of numpy's matrix library would wait for their next product
#: busily, on cores that decode.
KEPT_HEAP: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "OPENBLAS_NUM_THREADS": "1",
}


def give_back() -> None:
    """Give the kernel what glibc keeps of freed memory (malloc_trim(3)); other C libraries keep little."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
