"""The sweeper: finds sessions and jobs whose deadline has passed. The fold decides, by log time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from streams.folding.store import HeadStore

#: Entries of a partition's expiry index that are taken at once.
SWEEP: Final = 256

#: Append the command that ends an id whose index entry has this due time (ms), without waiting for its verdict.
Send = Callable[[str, int], Awaitable[None]]


async def sweep(stores: Iterable[HeadStore[Any]], now_ms: int, send: Send) -> int:
    """Send for what is due, a bounded number of each partition; return how many were due."""
    due = [entry for store in stores for entry in store.due(now_ms, SWEEP)]
    for deadline, id in due:
        await send(id, deadline)
    return len(due)
