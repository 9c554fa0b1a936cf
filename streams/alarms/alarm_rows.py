"""The rows of the alarms of one partition: alarms, the list of each project, and what is due to each destination.

An alarm and its entries are logged before the row of its session's rules, which says that it was made (`Watched.next`).
An entry without such an alarm is ignored, and deleted where that is certain.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from streams.folding.draft import ERASED_ROWS, Draft
from streams.folding.head_store import PartitionTable, above
from topics import keys
from topics.alarms.alarms import Alarm, Delivery
from topics.alarms.evaluation import Standing, Watched
from topics.errors import RecordError
from topics.ports.alarms import AlarmQuery
from topics.rows import Decoder, encode
from topics.service_time import Served
from topics.times import DAY_MS

log = structlog.get_logger(__name__)

#: Service time (ms) for which an alarm is kept: longer than its deliveries are tried.
KEPT_MS: Final = 7 * DAY_MS
#: Entries of a list to read at a time.
PAGE: Final = 64
#: Unreadable alarms to report.
MOST_REPORTED: Final = 1000

_alarm: Final = Decoder[Alarm](Alarm).optional
_watched: Final = Decoder[Watched](Watched).optional
_changes: Final = Decoder[dict[str, Standing]](dict[str, Standing]).optional


class AlarmRows:
    """Reads and changes the alarms of a partition. Loop only."""

    def __init__(self, partition: PartitionTable, is_open: Callable[[str], bool]) -> None:
        """`is_open` returns whether a session is there, and neither deleted nor expired."""
        self._partition = partition
        self._is_open = is_open
        #: Destinations with pending deliveries, each with a time below which it has none: a seek steps over each
        #: deleted entry until RocksDB compacts them.
        self._floors: dict[str, int] = {}
        #: Alarms whose rows cannot be read, and which were reported.
        self._unreadable: set[tuple[str, int]] = set()

    # --- reads ------------------------------------------------------------------------------------------------------

    def watched(self, session: str) -> Watched | None:
        """Return the row of a session's rules; raise RecordError if it cannot be read."""
        return _watched(self._partition.get(_watched_key(session)))

    def get(self, session: str, number: int) -> Alarm | None:
        """Return an alarm, None if there is none or it was not made yet.

        Raises:
            RecordError: its row cannot be read.
        """
        alarm = _alarm(self._partition.get(keys.alarm_key(session, number)))
        return alarm if alarm is not None and self._is_made(session, number) else None

    def _is_made(self, session: str, number: int) -> bool:
        if self._partition.get(keys.alarm_key(session)) is not None:
            return False
        watched = self.watched(session)
        # The row is gone with its session.
        return number < watched.next if watched is not None else not self._is_open(session)

    def listed(self, query: AlarmQuery) -> Iterator[Alarm]:
        """Yield the alarms of a project, the newest first."""
        lower = keys.alarm_list_key(query.project, query.until_ms - 1)
        if query.after is not None:
            lower = max(lower, keys.alarm_list_key(query.project, *query.after) + b"\0")
        upper = above(keys.alarm_list_key(query.project, keys.LATEST_MS)[:-8])
        if query.since_ms:
            upper = keys.alarm_list_key(query.project, query.since_ms - 1)
        for key in self._keys(lower, upper):
            alarm = self._of(key)
            if alarm is not None and key == _list_key(alarm):
                yield alarm

    def project_of(self, session: str) -> str | None:
        """Return the project of a session's alarms, None if it has none that can be read."""
        rows = self._partition.scan(keys.alarm_key(session, 0), above(keys.alarm_key(session)))
        found = (self._of(key) for key, _ in rows)
        return next((alarm.project for alarm in found if alarm is not None), None)

    def due(self, until_ms: int, count: int, busy: Collection[str]) -> Iterator[tuple[int, Alarm]]:
        """Yield the alarms that are due to each destination that is not busy, with the time; stale entries go."""
        ripe = [one for one, floor in self._floors.items() if floor <= until_ms and one not in busy]
        for destination in ripe:
            found, stale, floor = 0, list[bytes](), keys.LATEST_MS
            lower = keys.alarm_due_key(destination, self._floors[destination])
            for key in self._keys(lower, above(lower[:-8])):
                at = keys.parse_alarm_due(key)[1]
                if found == count or at > until_ms:
                    floor = min(floor, at)
                    break
                alarm = self._of(key)
                if alarm is not None and _delivery_at(alarm, destination, at):
                    found += 1
                    yield at, alarm
                elif alarm is not None or self._is_gone(key):
                    stale.append(key)
                    continue
                floor = min(floor, at)
            if floor < keys.LATEST_MS:
                self._floors[destination] = floor
            else:
                del self._floors[destination]
            if stale:
                self._partition.write(dict.fromkeys(stale))

    def waiting(self) -> Iterator[bytes]:
        """Yield the entries of pending deliveries, to be counted at once."""
        for destination, floor in self._floors.items():
            lower = keys.alarm_due_key(destination, floor)
            for key, _ in self._partition.scan(lower, above(lower[:-8])):
                yield key

    def pending(self) -> Iterator[Sequence[Alarm]]:
        """Yield all alarms with pending deliveries, each once, and () for other entries; learn the destinations."""
        for key in self._keys(keys.ALARM_DUE + b"\x01", above(keys.ALARM_DUE)):
            destination, at = keys.parse_alarm_due(key)
            self._lower(destination, at)
            alarm = self._of(key)
            is_first = alarm is not None and alarm.pending[:1] == _delivery_at(alarm, destination, at) != ()
            yield (alarm,) if alarm is not None and is_first else ()

    def _lower(self, destination: str, at: int) -> None:
        self._floors[destination] = min(self._floors.get(destination, at), at)

    def _of(self, key: bytes) -> Alarm | None:
        """Return the alarm of an entry, None if it is gone, was not made yet, or cannot be read."""
        try:
            return self.get(*keys.parse_alarm(key))
        except RecordError as error:
            session, number = keys.parse_alarm(key)
            if (session, number) not in self._unreadable and len(self._unreadable) < MOST_REPORTED:
                self._unreadable.add((session, number))
                log.warning("alarm.unreadable", session=keys.shown(session), number=number, cause=str(error))
            return None

    def _is_gone(self, key: bytes) -> bool:
        return self._partition.get(keys.alarm_key(*keys.parse_alarm(key))) is None

    def _keys(self, lower: bytes, upper: bytes) -> Iterator[bytes]:
        """Yield the keys of a range, which may change meanwhile."""
        page = [b""]
        while page:
            page = [key for key, _ in self._partition.scan(lower, upper, PAGE)]
            yield from page
            lower = page[-1] + b"\0" if len(page) == PAGE else upper
            if lower >= upper:
                return

    # --- new alarms, and what becomes of them -----------------------------------------------------------------------

    def made(self, session: str, watched: Watched, alarms: Sequence[Alarm]) -> dict[bytes, bytes]:
        """Return the rows of new alarms, and then that of the session's rules, to be logged in this order."""
        rows = {keys.alarm_key(session, alarm.sequence): encode(alarm) for alarm in alarms}
        entries = dict.fromkeys((key for alarm in alarms for key in _entries(alarm)), b"")
        return {**rows, **entries, _watched_key(session): encode(watched)}

    def note_made(self, alarms: Sequence[Alarm]) -> None:
        """Note that the rows of new alarms are in the table."""
        for alarm in alarms:
            for delivery in alarm.pending:
                self._lower(delivery.destination, delivery.at)

    def change(self, before: Alarm, after: Alarm) -> None:
        """Write a changed alarm; raise DiskFull if the disk is full."""
        entries: dict[bytes, bytes | None] = {**dict.fromkeys(_entries(before)), **dict.fromkeys(_entries(after), b"")}
        self._partition.write({keys.alarm_key(after.session, after.sequence): encode(after), **entries})
        self.note_made([after])

    def log_again(self, alarm: Alarm, logged: Callable[[], None]) -> None:
        """Log the row of an alarm again, and call `logged` once the changelog has it."""
        self._partition.write_again([keys.alarm_key(alarm.session, alarm.sequence)], logged)

    # --- the end ----------------------------------------------------------------------------------------------------

    def drop_unmade(self, session: str, first: int) -> None:
        """Delete the alarms of a session from a number on: they were logged, and the row of its rules was not."""
        if unmade := self._rows_from(session, first):
            self._partition.write(dict.fromkeys(unmade))

    def erase(self, draft: Draft[Any], session: str) -> None:
        """Delete all alarms of a deleted session; those beyond `ERASED_ROWS` are hidden, and `sweep` deletes them."""
        found = self._rows_from(session)
        for key in found:
            draft.delete(key)
        if sum(key[:1] == keys.ALARM for key in found) == ERASED_ROWS:
            draft.put(keys.alarm_key(session), b"")
            draft.put(_erased_key(session), b"")

    def sweep(self, served: Served) -> Iterator[None]:
        """Delete the alarms that are too old, and those of deleted sessions, some at each step."""
        oldest = keys.alarm_due_key("", 0)
        for key in self._keys(oldest, keys.alarm_due_key("", max(0, served.until - KEPT_MS) + 1)):
            at, (session, number) = keys.parse_alarm_due(key)[1], keys.parse_alarm(key)
            if self._partition.get(keys.alarm_key(session)) is not None:
                self._erase_some(session)
            elif at + KEPT_MS + served.absent_since(at) <= served.until:
                self._partition.write(dict.fromkeys([key, *self._rows_of(keys.alarm_key(session, number))]))
            yield

    def _erase_some(self, session: str) -> None:
        found = self._rows_from(session)
        if not found:
            found = [keys.alarm_key(session), _erased_key(session)]
        self._partition.write(dict.fromkeys(found))

    def erase_project(self, project: str) -> Iterator[None]:
        """Delete all alarms of a project, one at each step."""
        prefix = keys.alarm_list_key(project, keys.LATEST_MS)[:-8]
        for key in self._keys(prefix, above(prefix)):
            self._partition.write(dict.fromkeys([key, *self._rows_of(keys.alarm_key(*keys.parse_alarm(key)))]))
            yield

    def _rows_from(self, session: str, first: int = 0) -> list[bytes]:
        """Return the keys of a session's alarms from a number on, at most `ERASED_ROWS`, and of their entries."""
        lower, upper = keys.alarm_key(session, first), above(keys.alarm_key(session))
        found = [key for key, _ in self._partition.scan(lower, upper, ERASED_ROWS)]
        return [row for key in found for row in self._rows_of(key)]

    def _rows_of(self, key: bytes) -> list[bytes]:
        """Return the keys of an alarm and of its entries; readers delete those of a row that cannot be read."""
        with suppress(RecordError):
            if (alarm := _alarm(self._partition.get(key))) is not None:
                return [key, *_entries(alarm)]
        return [key]


def encoded_changes(now: Watched, row: Watched) -> bytes:
    """Return what changed since the row of a session's rules was written, to be kept with its newest windows."""
    changes = now.changes(row)
    return encode(changes) if changes else b""


def decoded_changes(value: bytes) -> dict[str, Standing]:
    """Return such changes; raise RecordError if they cannot be read."""
    return (_changes(value) if value else None) or {}


def _watched_key(session: str) -> bytes:
    return keys.row_key(keys.SESSION, session, keys.WATCHED)


def _erased_key(session: str) -> bytes:
    """Return the key of the entry for `sweep` that all alarms of a session are deleted."""
    return keys.alarm_due_key("", 0, session, 0)


def _list_key(alarm: Alarm) -> bytes:
    return keys.alarm_list_key(alarm.project, alarm.made_at, alarm.session, alarm.sequence)


def _entries(alarm: Alarm) -> list[bytes]:
    """Return the keys of an alarm's entries."""
    place = alarm.session, alarm.sequence
    due = [keys.alarm_due_key(one.destination, one.at, *place) for one in alarm.pending]
    return [_list_key(alarm), *due, keys.alarm_due_key("", alarm.made_at, *place)]


def _delivery_at(alarm: Alarm, destination: str, at: int) -> tuple[Delivery, ...]:
    """Return the pending delivery to a destination that is due at a time, if there is one."""
    return tuple(one for one in alarm.pending if (one.destination, one.at) == (destination, at))
