"""Faults that were fixed, put back one at a time: the simulator must find each.

The numbers are those of the review that found them. Each replaces what mended the fault by what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final
from unittest import mock

from streams.node.partitions import Partitions


@contextmanager
def _rows_dropped() -> Iterator[None]:
    """1: rows that may not be appended are dropped, and the node stays their owner."""
    with mock.patch.object(Partitions, "lapsed", lambda self, reason: None):
        yield


REGRESSIONS: Final[dict[int | None, Callable[[], AbstractContextManager[None]]]] = {
    None: nullcontext,
    1: _rows_dropped,
}
