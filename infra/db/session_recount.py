"""Compares sessions in the ledger with the log: by their rows while they exist, otherwise by their commands.

The audio of a line follows from windows alone (`streams.sessions.metering`). So the comparison needs only who opened a
session, and up to which window the log says that the ledger has it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from infra.db.ledger import as_stored
from streams.log import LogHistory, PartitionRecord
from streams.sessions.metering import charges
from topics import catalog, keys, record_codec
from topics.errors import RecordError
from topics.ports.ledger import Charge
from topics.sessions import rows
from topics.sessions.records import Metered, Opened
from topics.sessions.rules import SessionHead, SessionState

T = TypeVar("T")
#: Session and step.
Key = tuple[str, int]
KEPT: Final = (keys.HEAD, keys.REQUEST, keys.NEWEST)


class SessionCount(msgspec.Struct):
    """A session according to the log."""

    opened: Opened
    #: Windows that the log says are in the ledger.
    metered: Metered = Metered("", 0)
    #: Windows made, as far as the log has them.
    windows: int = 0
    #: Windows that the ledger must have now.
    due: int = 0


async def count_sessions(history: LogHistory) -> dict[str, SessionCount]:
    """Return the counts of the sessions that the log has completely.

    Raises:
        ServiceError: the log cannot be read.
    """
    heads, sessions = await _by_rows(history)
    for session, head in heads.items():
        if session in sessions:
            metered = Metered("", head.metered, bool(head.predicts))
            sessions[session] = SessionCount(sessions[session].opened, metered, head.windows, head.meterable)
    # A session without a head was deleted: only the log's commands tell what it had.
    sessions = {session: count for session, count in sessions.items() if session in heads}
    async with aclosing(history.records(catalog.COMMANDS)) as records:
        async for record in records:
            session = (record.key or b"").decode("ascii", "replace")
            command = readable(record_codec.decode_command, record.value)
            if isinstance(command, Opened) and session not in sessions:
                sessions[session] = SessionCount(msgspec.structs.replace(command, at=record.timestamp))
            elif isinstance(command, Metered) and (count := sessions.get(session)) is not None:
                count.metered = max(count.metered, command, key=attrgetter("windows"))
                count.windows = max(count.windows, command.windows)
    return sessions


def session_differences(
    sessions: Mapping[str, SessionCount], before: Mapping[Key, Charge], after: Mapping[Key, Charge]
) -> Iterator[tuple[str, Charge | None, Charge | None]]:
    """Yield (session, the log's charge, the ledger's charge) for each difference.

    `before` is the ledger before the log was read, `after` the ledger after that.
    """
    for session, count in sessions.items():
        for charge in map(as_stored, charges(session, count.opened, count.metered)):
            if (line := after.get((session, charge.step))) != charge:
                yield session, charge, line
        if count.due > count.metered.windows:
            due = Metered("", count.due, count.metered.predicts)
            for charge in map(as_stored, charges(session, count.opened, due, count.metered.windows)):
                if (session, charge.step) not in after:
                    yield session, charge, None
    for (session, step), line in before.items():
        if (known := sessions.get(session)) is not None:
            made = Metered("", known.windows, known.metered.predicts)
            if step not in {charge.step for charge in charges(session, known.opened, made)}:
                yield session, None, line


async def _by_rows(history: LogHistory) -> tuple[dict[str, SessionHead], dict[str, SessionCount]]:
    heads: dict[str, SessionHead] = {}
    newest: dict[str, rows.Newest | None] = {}
    sessions: dict[str, SessionCount] = {}
    for key, record in (await newest_rows(history, keys.SESSION)).items():
        session = key[1:-1].decode("ascii")
        if key[-1:] == keys.HEAD and (head := rows.head(record.value)) is not None:
            # A tombstone has no counts, so a deleted session is compared by its records once the ledger has all of it.
            if head.state is not SessionState.DELETED or head.unmetered:
                heads[session] = head
        elif key[-1:] == keys.NEWEST:
            newest[session] = rows.newest(record.value)
        elif key[-1:] == keys.REQUEST and (opened := rows.opened(record.value)) is not None:
            sessions[session] = SessionCount(opened)
    whole = ((session, rows.whole(head, newest.get(session))) for session, head in heads.items())
    return {session: head for session, head in whole if head is not None}, sessions


async def newest_rows(history: LogHistory, kind: bytes) -> dict[bytes, PartitionRecord]:
    """Return the head, request and newest rows of all kept sessions or jobs, by key."""
    found: dict[bytes, PartitionRecord] = {}
    async with aclosing(history.records(catalog.CHANGELOG)) as records:
        async for record in records:
            key = record.key or b""
            if key[:1] == kind and len(key) == len(kind) + keys.ID_LENGTH + 1 and key[-1:] in KEPT:
                if record.value:
                    found[key] = record
                else:
                    found.pop(key, None)
    return found


def readable(decode: Callable[[bytes | None], T], value: bytes | None) -> T | None:
    """Decode a record; return None if it is unreadable, because the service parks such records and goes on."""
    try:
        return decode(value)
    except RecordError:
        return None
