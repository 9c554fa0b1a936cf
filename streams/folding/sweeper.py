"""The sweeper: finds sessions and jobs whose deadline has passed. The fold decides, by log time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from streams.folding.head_store import HeadStore

#: Entries of a partition's expiry index that are sent for at once; commands of about 100 bytes, and all that a client's
#: command may have to wait for.
SWEEP: Final = 64
#: Time for the fold to handle these. An entry that is still there is not due by log time, or the fold is behind.
FOLD_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.005

#: Append the command that ends an id whose index entry has this due time (ms), without waiting for its verdict.
Send = Callable[[str, int], Awaitable[None]]
#: Return the stores of the partitions that this node serves now.
Serving = Callable[[], Iterable[HeadStore[Any]]]


async def sweep(serving: Serving, now_ms: int, send: Send) -> int:
    """Send commands for everything due, one partition after the other; return how many were due."""
    return sum([await _sweep_store(store, serving, now_ms, send) for store in list(serving())])


async def _sweep_store(store: HeadStore[Any], serving: Serving, now_ms: int, send: Send) -> int:
    """Send commands for everything due in a partition, no faster than it is folded, while it is served here."""
    count, last = 0, None
    while _is_among(store, serving):
        due = store.due(now_ms, SWEEP, last)
        await asyncio.gather(*(send(id, deadline) for deadline, id in due))
        count += len(due)
        if len(due) < SWEEP or not await _is_folded(store, serving, due[-1]):
            break
        last = due[-1]
    return count


async def _is_folded(store: HeadStore[Any], serving: Serving, entry: tuple[int, str]) -> bool:
    """Wait until the fold has deleted an entry, and so those before it; False if it does not, or not here."""
    give_up = asyncio.get_running_loop().time() + FOLD_SECONDS
    while _is_among(store, serving) and asyncio.get_running_loop().time() < give_up:
        if store.partition.get(store.due_key(*entry)) is None:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


def _is_among(store: HeadStore[Any], serving: Serving) -> bool:
    return any(one is store for one in serving())
