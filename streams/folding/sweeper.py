"""Finds sessions and jobs past their deadline and sends commands to end them; the fold decides by log time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import structlog

from streams.folding.head_store import HeadStore
from topics.errors import Unavailable

log = structlog.get_logger(__name__)

#: Expiry commands to send at once per partition, about 100 bytes each; a client's command waits for no more of them.
SWEEP: Final = 64
#: Seconds for the fold to handle them. An entry that remains is not due by log time, or the fold is behind.
FOLD_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.005

#: Appends the command that ends an id whose index entry has this due time (ms), without waiting for its verdict.
Send = Callable[[str, int], Awaitable[None]]
#: Returns the stores of the partitions that this node serves now.
Serving = Callable[[], Iterable[HeadStore[Any]]]


async def sweep(serving: Serving, now_ms: int, send: Send) -> int:
    """Send commands for all due ids, one partition after the other; return their number."""
    count = 0
    for store in list(serving()):
        try:
            count += await _sweep_store(store, serving, now_ms, send)
        except Unavailable as error:  # Tried again in the next round; other partitions do not wait for it.
            log.warning("sweep.later", partition=store.partition.number, error=str(error))
    return count


async def _sweep_store(store: HeadStore[Any], serving: Serving, now_ms: int, send: Send) -> int:
    """Send commands for a partition's due ids, no faster than it folds them, while it is served here."""
    count, last = 0, None
    while _is_among(store, serving):
        due = store.due(now_ms, SWEEP, last)
        # A command for an unreadable id would be parked, again in each sweep.
        sent = [(deadline, id) for deadline, id in due if store.readable(id)]
        await asyncio.gather(*(send(id, deadline) for deadline, id in sent))
        count += len(sent)
        if len(due) < SWEEP or (sent and not await _is_folded(store, serving, sent[-1])):
            break
        last = due[-1]
    return count


async def _is_folded(store: HeadStore[Any], serving: Serving, entry: tuple[int, str]) -> bool:
    """Wait until the fold has deleted an entry, and so all before it; return False if it does not, or not here."""
    give_up = asyncio.get_running_loop().time() + FOLD_SECONDS
    while _is_among(store, serving) and asyncio.get_running_loop().time() < give_up:
        if store.partition.get(store.due_key(*entry)) is None:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


def _is_among(store: HeadStore[Any], serving: Serving) -> bool:
    return any(one is store for one in serving())
