"""Fixed faults, reintroduced one at a time: the simulator must find each.

Numbers up to 7 are those of the review that found them; the simulator found the others. Each function replaces the fix
by the earlier code.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import msgspec

from streams.folding import batch, retry
from streams.folding.command_intake import Intake
from streams.log import StoredRecord
from streams.membership import assignor
from streams.membership.membership import GroupMembership
from streams.node import takeover
from streams.node.owner import PartitionOwner
from streams.node.partitions import Partitions
from streams.node.sessions import SessionWorkload
from streams.node.standby_reads import StandbyReads
from streams.sessions.store import SessionStore
from streams.sessions.window_writer import WindowWriter
from streams.tables import partition_rows as module
from streams.tables.partition_rows import PartitionRows
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import Unavailable


def _replaced(owner: type, name: str, method: Callable[..., Any]) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, method)


# --- 1: rows that may not be appended are dropped, and the node stays their owner -----------------------------------


def _stay(self: Partitions, reason: str) -> None:
    pass


# --- 2: an interrupted restore and a stand-by apply rows to one table in no order -----------------------------------


@contextmanager
def _unlocked() -> Iterator[None]:
    real = takeover.apply_if_owner

    def apply_if_owner(owner: PartitionOwner, records: Sequence[StoredRecord]) -> None:
        if not owner.closed:
            # A restore applies what it has read, whatever the table contains by now.
            before = owner.rows.applied
            owner.rows.applied = msgspec.structs.replace(before, offset=min(before.offset, records[0].offset))
        real(owner, records)

    unlocked = SimpleNamespace(Lock=nullcontext)
    with (
        mock.patch.object(module, "threading", unlocked),
        mock.patch.object(takeover, "apply_if_owner", apply_if_owner),
    ):
        yield


# --- 4: a table that gets a record counts as fresh, however long it got none before ---------------------------------


def _apply_as_fresh(real: Any, self: PartitionRows, records: Sequence[StoredRecord]) -> None:
    self.note_fresh(self.now_ms())
    real(self, records)


# --- 5: a gap that was read counts for the partition's current owner ------------------------------------------------


def _count_gap(self: Any, tp: TopicPartition, start: int, stop: int) -> None:
    owner = self.owners.here.get(tp.partition)
    if owner is not None and owner.rows.epoch:
        owner.unread_gaps = (owner.unread_gaps or 0) + 1
    self._tasks.spawn(_read_for_anybody(self, tp, start, stop), "gap")


async def _read_for_anybody(self: Any, tp: TopicPartition, start: int, stop: int) -> None:
    async def read() -> list[StoredRecord]:
        return [record async for records in self.backend.read(tp, start, stop) for record in records]

    records = await retry.until_available(read)
    owner = self.owners.here.get(tp.partition)
    if owner is None or not owner.has_table or not owner.rows.epoch:
        return
    owner.unread_gaps = (owner.unread_gaps or 0) - 1
    owner.noted = None
    others = [record for record in records if record.epoch != owner.rows.epoch]
    if any(record.epoch > owner.rows.epoch for record in others):
        self._close([tp.partition], "a later owner has written to its changelog")
    else:
        owner.rows.write_again(sorted({record.key for record in others if record.key is not None}))


# --- 6: an error in the last step of a takeover is fatal ------------------------------------------------------------


async def _begin_or_end(real: Any, self: SessionWorkload, owner: PartitionOwner) -> int:
    try:
        return int(await real(self, owner))
    except Unavailable as error:
        raise RuntimeError("the last step of a takeover failed") from error


# --- 7: a record whose fold fails is parked, even for a fault of the machine ----------------------------------------


@contextmanager
def _parked() -> Iterator[None]:
    real = batch._fold

    def fold(draft: Any, record: Any, agent: Any) -> Exception | None:
        try:
            return real(draft, record, agent)
        except Unavailable as error:
            draft.begin()
            return error

    with mock.patch.object(batch, "_fold", fold):
        yield


def _wrapping(owner: type, name: str, wrapper: Callable[..., Any]) -> AbstractContextManager[Any]:
    real = getattr(owner, name)

    def wrapped(self: Any, *arguments: Any) -> Any:
        return wrapper(real, self, *arguments)

    return _replaced(owner, name, wrapped)


# --- 9: windows are shown before the changelog has them -------------------------------------------------------------


def _log_at_once(real: Any, self: PartitionRows, rows: Any, logged: Callable[[], None], head: bytes | None) -> None:
    real(self, rows, lambda: None, head)
    logged()


# --- 10: a deletion forgets windows on their way to the changelog ---------------------------------------------------


def _nothing_on_way(self: SessionStore, id: str) -> tuple[bytes, ...]:
    return ()


# --- 12: a row that is logged again is the table's, though a newer one is on its way --------------------------------


def _write_table_again(self: PartitionRows, keys: Sequence[bytes], logged: Callable[[], None] | None = None) -> None:
    self._writer.append_rows(CHANGELOG, self.number, {key: self.get(key) for key in keys}, self.epoch, logged)


# --- 13: acknowledged windows of a session that ended are shown -----------------------------------------------------


@contextmanager
def _shown_after_the_end() -> Iterator[None]:
    """Its head is made again from what the windows know."""

    def show(self: WindowWriter, store: SessionStore, some: Sequence[Any]) -> None:
        for one in some:
            store.partition.write({}, one.rows)
        real(self, store, list(some))

    real = WindowWriter._show_some
    with _replaced(WindowWriter, "_show_some", show):
        yield


# --- 14: positions are noted before the heads that the commands below them changed ----------------------------------


def _log_no_heads(self: PartitionRows) -> Iterator[None]:
    return iter(())


# --- 15: the changelog has windows of a session that it does not have -----------------------------------------------


def _log_headless(real: Any, self: PartitionRows, rows: Any, logged: Callable[[], None], head: bytes | None) -> None:
    real(self, rows, logged)


# --- 16: a node that the group has gone on without is read for as long as it may append -----------------------------


def _read_as_appended(self: GroupMembership) -> bool:
    return self.valid()


# --- 17: stand-bys are placed as if each node were on a machine of its own ------------------------------------------


def _none_beside_owner(*arguments: Any) -> Iterator[Any]:
    return iter(())


# --- 18: stand-bys are read before they have what the changelog has ------------------------------------------------


async def _read_at_once(self: StandbyReads, id: str) -> int:
    return 1


# --- 19: a deletion is confirmed before the changelog has it --------------------------------------------------------


def _confirm_at_once(self: Intake[Any, Any], draft: Any, id: str, command: Any, verdict: Any) -> None:
    self._answers.append((command.command, verdict))


REGRESSIONS: Final[dict[int | None, Callable[[], AbstractContextManager[Any]]]] = {
    None: nullcontext,
    1: partial(_replaced, Partitions, "lapsed", _stay),
    2: _unlocked,
    4: partial(_wrapping, PartitionRows, "apply", _apply_as_fresh),
    5: partial(_replaced, Partitions, "overtaken", _count_gap),
    6: partial(_wrapping, SessionWorkload, "begin", _begin_or_end),
    7: _parked,
    9: partial(_wrapping, PartitionRows, "log_first", _log_at_once),
    10: partial(_replaced, SessionStore, "on_way", _nothing_on_way),
    12: partial(_replaced, PartitionRows, "write_again", _write_table_again),
    13: _shown_after_the_end,
    14: partial(_replaced, PartitionRows, "log_heads", _log_no_heads),
    15: partial(_wrapping, PartitionRows, "log_first", _log_headless),
    16: partial(_replaced, GroupMembership, "may_read", _read_as_appended),
    17: partial(mock.patch.object, assignor, "_beside_owner", _none_beside_owner),
    18: partial(_replaced, StandbyReads, "as_of", _read_at_once),
    19: partial(_replaced, Intake, "answer", _confirm_at_once),
}
