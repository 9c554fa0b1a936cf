"""Batches of records into rows: one write a batch, and records that fail are tried again and then parked.

A record whose fold raises is tried again, then parked in the dead-letter topic with its cause; the batch goes on
without it. Nothing is acknowledged before the whole batch is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from streams.folding.agent import Agent
from streams.folding.draft import Draft
from streams.folding.record import LogRecord
from streams.folding.store import H, HeadStore
from topics.errors import RecordError

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)

#: Append a record of a partition to the dead-letter topic, with the cause.
Park = Callable[[int, LogRecord, str], Awaitable[None]]


async def fold_batch(
    store_of: Callable[[], HeadStore[H]], records: Sequence[LogRecord], agent: Agent[H], park: Park
) -> None:
    """Fold a batch of one partition in log order, and write it at once as long as nothing fails.

    No draft lives over an await: the other agent may write the same heads meanwhile, and a draft that was begun
    before would put the old ones back. So what precedes a failing record is written before the pause.
    """
    draft = Draft(store_of())
    for record in records:
        error = _fold(draft, record, agent)
        if error is not None:
            draft.apply()
            cause = await _try_again(store_of, record, agent, error)
            if cause is not None:
                await park(draft.store.partition.number, record, cause)
            draft = Draft(store_of())
    draft.apply()
    agent.written()


def _fold(draft: Draft[H], record: LogRecord, agent: Agent[H]) -> Exception | None:
    """Fold one record into the draft; return what it raised, with its writes undone."""
    draft.begin()
    try:
        agent.fold(draft, record)
    except Exception as error:
        draft.begin()
        return error
    draft.keep()
    return None


async def _try_again(
    store_of: Callable[[], HeadStore[H]], record: LogRecord, agent: Agent[H], error: Exception
) -> str | None:
    """Fold again after pauses that grow; return the cause of the last failure, None once it succeeds."""
    for attempt in range(1, ATTEMPTS):
        if isinstance(error, RecordError):
            break
        log.warning("record.failed", offset=record.offset, attempt=attempt, error=repr(error))
        await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        draft = Draft(store_of())
        again = _fold(draft, record, agent)
        if again is None:
            draft.apply()
            return None
        error = again
    return f"{type(error).__name__}: {error}"
