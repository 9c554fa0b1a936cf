"""The law of results: how a record of the result topic changes a session.

Results arrive at least once. What was folded before is written again, never skipped: after a crash the redelivered
record may be the only chance to put the row into the changelog.
"""

from __future__ import annotations

import msgspec

from topics.errors import RecordError
from topics.lifecycle import Head, State
from topics.records import Failed, Result, Scored


class Outcome(msgspec.Struct, frozen=True):
    """The new head (None: the session is gone, drop the record) and the first window of the record that is new."""

    head: Head | None
    fresh: int = 0


def fold_result(head: Head | None, result: Result, windows: int) -> Outcome:
    """Apply one result record that holds `windows` windows (0 for a failure).

    Raises:
        RecordError: the record leaves a gap after the windows that are known; it belongs to another history.
    """
    if head is None:
        return Outcome(None)
    if isinstance(result, Failed):
        failed = msgspec.structs.replace(head, state=State.READONLY, error=result.error, finished=True)
        return Outcome(failed, head.windows)
    if head.error is not None:
        return Outcome(head, head.windows)
    return _scored(head, result, windows)


def _scored(head: Head, result: Scored, windows: int) -> Outcome:
    if result.first > head.windows:
        raise RecordError(f"windows {result.first}.. arrived, but only {head.windows} are known")
    end = result.first + windows
    if end < head.windows or result.cursor.chunks < head.cursor.chunks:
        return Outcome(head, result.first)
    grown = msgspec.structs.replace(head, windows=end, cursor=result.cursor, finished=head.finished or result.final)
    return Outcome(grown, result.first)
