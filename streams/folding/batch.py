"""Batches of records into rows: one write for each batch; failing records are retried and then parked.

Nearly all records succeed, and are folded at once, without a pause in which anything else could happen. A record whose
fold raises is retried after pauses, and then parked in the dead-letter topic with its cause; the batch goes on without
it. A fault of the table or the machine is not the record's: nothing is parked, and the batch waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from streams.folding.draft import Draft
from streams.folding.fold import Fold
from streams.folding.head_store import H, HeadStore
from streams.log import StoredRecord
from topics.errors import RecordError, Unavailable

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)

#: Append a record of a partition to the dead-letter topic, with the cause.
Park = Callable[[int, StoredRecord, str], Awaitable[None]]


def fold_batch(store: HeadStore[H], records: Sequence[StoredRecord], fold: Fold[H]) -> int:
    """Fold records of one partition in log order up to the first that fails, and write them at once.

    Returns:
        How many were folded.

    Raises:
        Unavailable: the table takes nothing or cannot be read; nothing was folded.
    """
    draft = Draft(store)
    folded = 0
    for record in records:
        if _fold(draft, record, fold) is not None:
            break
        folded += 1
    write_draft(draft, fold)
    return folded


async def fold_patiently(store: HeadStore[H], record: StoredRecord, fold: Fold[H], park: Park) -> None:
    """Retry a failed record after increasing pauses; park it if it fails each time.

    No draft lives across an await: the other fold may write the same heads meanwhile, and an older draft would put the
    old ones back.

    Raises:
        Unavailable: the table takes nothing or cannot be read, or the log takes no dead letter.
    """
    for attempt in range(1, ATTEMPTS + 1):
        draft = Draft(store)
        error = _fold(draft, record, fold)
        if error is None:
            write_draft(draft, fold)
            return
        if isinstance(error, RecordError) or attempt == ATTEMPTS:
            break
        log.warning("record.failed", offset=record.offset, attempt=attempt, error=repr(error))
        await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
    await park(store.partition.number, record, f"{type(error).__name__}: {error}")


def write_draft(draft: Draft[H], fold: Fold[H]) -> None:
    """Write a draft, then do what may only be done once it is written."""
    try:
        draft.apply()
    except BaseException:
        fold.forget()
        # Commands that were folded before may have rewritten rows in this draft; those were not written.
        draft.store.redelivered.clear()
        raise
    for offset in draft.released:
        fold.release(draft.store, offset)
    fold.written()


def _fold(draft: Draft[H], record: StoredRecord, fold: Fold[H]) -> Exception | None:
    """Fold one record into the draft; undo its writes and return its error, or raise Unavailable for the machine's."""
    draft.begin()
    try:
        fold.fold(draft, record)
    except (Unavailable, OSError, MemoryError) as error:
        fold.forget()
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(f"nothing can be folded now: {error}") from error
    except Exception as error:
        draft.begin()
        return error
    draft.keep()
    return None
