"""Finds sessions and jobs whose time is over, and sends commands to end them.

Only time in which the service could have met a deadline counts: not the time in which accepted audio waits for its
analysis, and not the absences of the service (`topics.service_time`). The fold knows neither. So the sweeper decides,
and the fold ends what it names unless a command came since.

An entry of the expiry index is at or before the time at which its id is due. The sweeper moves it if it is not due.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import structlog

from streams.folding.head_store import HeadStore
from topics import rows, service_time
from topics.errors import Unavailable
from topics.folding import Head
from topics.service_time import MINUTE_MS, Seen, Served
from topics.times import HOUR_MS

log = structlog.get_logger(__name__)

#: Expiry commands to send at once per partition, about 100 bytes each; a client's command waits for no more of them.
SWEEP: Final = 64
#: Seconds for the fold to handle them. An entry that remains is not due by log time, or the fold is behind.
FOLD_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.005

#: Appends the command that ends an id whose index entry has this due time (ms), if the last command that it has folded
#: is at this offset; does not wait for the verdict.
Send = Callable[[str, int, int], Awaitable[None]]
#: Returns the stores of the partitions that this node serves now.
Serving = Callable[[], Iterable[HeadStore[Any]]]


class Due(NamedTuple):
    """When an id is due (log time in ms), or its waiting work is given up, and what its index entry remembers."""

    at: int
    is_waiting: bool = False
    seen: bytes = b""


class Sweeper:
    """Sweeps the sessions, or the jobs, of a node. Loop only."""

    def __init__(self, serving: Serving, lifetime_ms: int, patience_ms: int, send: Send, give_up: Send) -> None:
        """`lifetime_ms` is passed to `Head.terms`. Work that stands still for `patience_ms` is ended by `give_up`."""
        self._serving = serving
        self._lifetime_ms = lifetime_ms
        self._patience_ms = patience_ms
        self._send = send
        self._give_up = give_up

    async def sweep(self) -> int:
        """Send commands for all due ids, one partition after the other; return their number."""
        count = 0
        for store in list(self._serving()):
            try:
                count += await self._sweep_store(store)
            except Unavailable as error:  # Tried again in the next round; other partitions do not wait for it.
                log.warning("sweep.later", partition=store.partition.number, error=str(error))
        return count

    async def _sweep_store(self, store: HeadStore[Any]) -> int:
        """Send commands for a partition's due ids, no faster than it folds them, while it is served here."""
        count, last = 0, None
        if (served := store.presence.served) is None:
            return 0
        # Only a clock that was ahead makes later entries.
        latest = served.until + max(self._lifetime_ms, HOUR_MS) + 2 * MINUTE_MS
        await self._judge(store, store.due(2**62, SWEEP, (latest, "")), served)
        while self._is_among(store):
            due = store.due(served.until, SWEEP, last)
            sent = await self._judge(store, due, served)
            count += len(sent)
            if len(due) < SWEEP or (sent and not await self._is_folded(store, sent[-1])):
                break
            last = due[-1]
        return count

    async def _judge(
        self, store: HeadStore[Any], entries: Iterable[tuple[int, str]], served: Served
    ) -> list[tuple[int, str]]:
        """Send commands for the entries that are due, and move the others; return those with commands."""
        moved: dict[bytes, bytes | None] = {}
        ends: list[tuple[Send, tuple[str, int, int]]] = []
        over = []
        for deadline, id in entries:
            # A command for an id that was set aside would be parked, again in each sweep.
            if not store.takes_commands(id):
                continue
            key, head = store.due_key(deadline, id), store.peek(id)
            due = Due(0) if head is None else self._due(head, store.partition.get(key), served)
            is_over, command = due.at < served.until, -1 if head is None else head.command
            if is_over:
                ends.append((self._give_up if due.is_waiting else self._send, (id, deadline, command)))
            if is_over and not due.is_waiting:
                over.append((deadline, id))
            else:
                # What waits is looked at again soon. Its time has not begun, so this is not too late.
                at = served.until + min(self._lifetime_ms, MINUTE_MS) if due.is_waiting else due.at
                moved |= {key: None, store.due_key(at, id): due.seen}
        if moved:
            store.partition.write(moved)
        await asyncio.gather(*(end(*arguments) for end, arguments in ends))
        return over

    def _due(self, head: Head, entry: bytes | None, served: Served) -> Due:
        """Return when a session or job is due, from its head, the value of its index entry, and the service time."""
        terms, seen = head.terms(self._lifetime_ms), b""
        is_waiting = not terms
        if is_waiting or any(since > served.until + MINUTE_MS for since, _ in terms):
            # No head says since when its work stands still, nor when something was if the clock was ahead then. The
            # index entry remembers when the sweeper saw it first.
            found = Seen(served.until, -1 if is_waiting else head.command, head.progress)
            before = service_time.seen(entry) if entry else None
            if before is None or not before.precedes(found):
                before = found
            terms = [(min(since, before.since), length) for since, length in terms]
            terms = terms or [(before.since, self._patience_ms)]
            seen = rows.encode(before)
        return Due(min(since + length + served.absent_since(since) for since, length in terms), is_waiting, seen)

    async def _is_folded(self, store: HeadStore[Any], entry: tuple[int, str]) -> bool:
        """Wait until the fold has deleted an entry, and so all before it; return False if it does not, or not here."""
        give_up = asyncio.get_running_loop().time() + FOLD_SECONDS
        while self._is_among(store) and asyncio.get_running_loop().time() < give_up:
            if store.partition.get(store.due_key(*entry)) is None:
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    def _is_among(self, store: HeadStore[Any]) -> bool:
        return any(one is store for one in self._serving())
