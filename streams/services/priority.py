"""Gives live sessions priority over jobs."""

import os
import sys
import threading
from contextlib import suppress
from typing import Final

#: Added to the nice value of threads that work for jobs.
NICE: Final = 10


def lower_priority(nice: int = NICE) -> None:
    """Lower the priority of the calling thread, on systems where threads have one.

    Use it only for threads that mostly run without the GIL: a thread that holds the GIL while unscheduled blocks
    the loop.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + nice)
