"""Which tests run in one process, in which order: the groups of `python -m tests` and how long they took."""

import re
from functools import cache
from pathlib import Path
from typing import Final

#: Directories whose tests share one service per log.
SHARING: Final = ("tests/contract/", "tests/dashboard/", "tests/interop/")
#: Seconds of each group on a machine of two cores; `python -m tests --record` writes them.
DURATIONS: Final = Path(__file__).parent / "durations.txt"


def group(test: str) -> str:
    """Return the group of a test: its file on one log, or all users of the shared service on Kafka."""
    file, _, name = test.partition("::")
    if not re.search(r"\[kafka\b", name):
        return file
    return "kafka" if file.startswith(SHARING) else f"{file} on Kafka"


@cache
def durations() -> dict[str, float]:
    """Return the seconds of each recorded group."""
    lines = (line.split(maxsplit=1) for line in DURATIONS.read_text().splitlines())
    return {name: float(seconds) for seconds, name in lines}
