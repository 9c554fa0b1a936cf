"""Batches of records into rows: what both folding agents share.

A record whose fold raises is tried again, then parked in the dead-letter topic with its cause; the batch goes on
without it. Nothing is acknowledged before the whole batch is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import structlog

from streams.folding.store import Draft, H, HeadStore
from topics.errors import RecordError
from topics.keys import is_id

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)


class LogRecord(Protocol):
    """One record as a log delivers it."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        ...

    @property
    def timestamp(self) -> int:
        """Log time in milliseconds."""
        ...

    @property
    def key(self) -> bytes | None:
        """The session id in ASCII."""
        ...

    @property
    def value(self) -> bytes | None:
        """The encoded record."""
        ...


Park = Callable[[int, LogRecord, str], Awaitable[None]]


class Folder(Protocol[H]):
    """One agent's work on a batch."""

    def fold(self, draft: Draft[H], record: LogRecord) -> None:
        """Fold one record into the draft; raise RecordError for one that can never be folded."""
        ...

    async def written(self, partition: int) -> None:
        """The batch is in the table: wake whoever waits for it."""
        ...

    def dropped(self, record: LogRecord, cause: str) -> None:
        """The record was parked."""
        ...


async def fold_batch(
    store_of: Callable[[], HeadStore[H]], records: Sequence[LogRecord], folder: Folder[H], park: Park
) -> None:
    """Fold a batch of one partition in log order, and write it at once as long as nothing fails.

    No draft lives over an await: the other agent may write the same heads meanwhile, and a draft that was begun
    before would put the old ones back. So what precedes a failing record is written before the pause.
    """
    draft = Draft(store_of())
    for record in records:
        error = _fold(draft, record, folder)
        if error is not None:
            draft.apply()
            cause = await _try_again(store_of, record, folder, error)
            if cause is not None:
                await park(draft.store.partition.number, record, cause)
                folder.dropped(record, cause)
            draft = Draft(store_of())
    draft.apply()
    await folder.written(draft.store.partition.number)


def _fold(draft: Draft[H], record: LogRecord, folder: Folder[H]) -> Exception | None:
    """Fold one record into the draft; return what it raised, with its writes undone."""
    draft.begin()
    try:
        folder.fold(draft, record)
    except Exception as error:
        draft.begin()
        return error
    draft.keep()
    return None


async def _try_again(
    store_of: Callable[[], HeadStore[H]], record: LogRecord, folder: Folder[H], error: Exception
) -> str | None:
    """Fold once more after a pause, growing each time; return the cause when it is no use."""
    for attempt in range(1, ATTEMPTS):
        if isinstance(error, RecordError):
            break
        log.warning("record.failed", offset=record.offset, attempt=attempt, error=repr(error))
        await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        draft = Draft(store_of())
        again = _fold(draft, record, folder)
        if again is None:
            draft.apply()
            return None
        error = again
    return f"{type(error).__name__}: {error}"


def name_of(record: LogRecord) -> str:
    """Return the id of the session or job that is the record's key.

    Raises:
        RecordError: the key is no id.
    """
    key = (record.key or b"").decode("ascii", "replace")
    if not is_id(key):
        raise RecordError("the record's key is not an id")
    return key
