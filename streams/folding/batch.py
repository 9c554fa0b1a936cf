"""Folds batches of records into rows, with one write per batch; retries and then parks failing records.

Nearly all records succeed, and are folded without yielding to the loop. A record whose fold raises is retried after
pauses, then parked in the dead-letter topic with its cause; the batch continues without it. If the table or the machine
fails, nothing is parked, and the batch waits.
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
#: Rows that a batch changes in some 20 ms.
BATCH_ROWS: Final = 2048

log = structlog.get_logger(__name__)

#: Appends a record of a partition to the dead-letter topic, with the cause, and whether the fault may be the
#: partition's: if not, it is of one session or job.
Park = Callable[[int, StoredRecord, str, bool], Awaitable[None]]


def fold_batch(store: HeadStore[H], records: Sequence[StoredRecord], fold: Fold[H]) -> int:
    """Fold records of one partition up to the first that fails, and write them at once; return how many were folded.

    Also end once they have changed `BATCH_ROWS` rows: a deletion may change a thousand.

    Raises:
        Unavailable: the table cannot be written or read; nothing was folded.
    """
    draft = Draft(store)
    folded = 0
    for record in records:
        if _fold(draft, record, fold) is not None:
            break
        folded += 1
        if draft.size >= BATCH_ROWS:
            break
    write_draft(draft, fold)
    return folded


async def fold_patiently(store: HeadStore[H], record: StoredRecord, fold: Fold[H], park: Park) -> None:
    """Retry a failed record after increasing pauses; park it, and set its id aside, if it fails each time.

    No draft lives across an await: the other fold may write the same heads meanwhile, and the draft would overwrite
    them with old ones.

    Raises:
        Unavailable: the table cannot be written or read, or the log does not accept the parked record.
    """
    whose = fold.whose(record)
    is_aside = whose is not None and whose[0] in store.aside
    attempts = 1
    while (error := _fold(draft := Draft(store), record, fold)) is not None:
        if isinstance(error, RecordError) or attempts == ATTEMPTS or is_aside:
            break
        log.warning("record.failed", offset=record.offset, attempt=attempts, error=repr(error))
        await asyncio.sleep(PAUSE_SECONDS * 2**attempts)
        attempts += 1
    if error is None:
        write_draft(draft, fold)
        return
    if whose is not None:
        fold.set_aside(store, *whose, error)
    # Unreadable rows are one id's fault. Bugs that set aside one id after the other may be the partition's.
    counts = whose is None or not (is_aside or isinstance(error, RecordError))
    await park(store.partition.number, record, f"{type(error).__name__}: {error}", counts)


def write_draft(draft: Draft[H], fold: Fold[H]) -> None:
    """Write a draft, then release its audio and announce its changes."""
    try:
        draft.apply()
    except BaseException:
        fold.forget()
        raise
    for offset in draft.released:
        fold.release(draft.store, offset)
    fold.written()


def _fold(draft: Draft[H], record: StoredRecord, fold: Fold[H]) -> Exception | None:
    """Fold one record into the draft; return its error after undoing its writes. Faults of the machine: Unavailable."""
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
