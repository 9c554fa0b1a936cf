"""The sweeper: asks for the deletion of sessions whose deadline has passed. The fold decides, by log time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from streams.agents.store import SessionStore
from topics.records import Expired

SWEEP_SESSIONS: Final = 256

#: Append a command of a session without waiting for its verdict.
Send = Callable[[str, Expired], Awaitable[None]]


async def sweep(stores: Iterable[SessionStore], now_ms: int, idle_ms: int, send: Send) -> int:
    """Send `Expired` for due sessions, a bounded number of each partition; return how many were due."""
    due = [entry for store in stores for entry in store.due(now_ms, SWEEP_SESSIONS)]
    for deadline, session in due:
        await send(session, Expired("sweep", idle_ms, deadline))
    return len(due)
