"""Repairs a damaged data directory so that it starts again: keeps everything readable and deletes nothing.

A node folds its tables from its log, so they may know more than the readable rest of the log. Then they become its
changelog, from which the next start rebuilds the tables.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from infra.db import intact
from infra.db.database import Database
from infra.db.salvage import copy_readable
from infra.db.secret import note_log_name
from infra.service import data_directory
from infra.service.backup import log_name
from infra.service.data_directory import DATABASE, SCRATCH, SUFFIXES
from infra.service.directories import database_file
from infra.service.lanes import lanes_of
from infra.settings import Settings
from infra.urls import Embedded
from streams.embedded import log_store as store
from streams.embedded import salvage as embedded
from streams.embedded.errors import REMEDIES, LogDamaged
from streams.embedded.marks import FILE as MARKS
from streams.embedded.marks import Marks
from streams.embedded.salvage import SKIPPED, Kept, NewLog
from streams.log import StoredRecord
from streams.tables.partition_rows import decode_folded
from streams.tables.remains import remains as table_remains
from topics import catalog, keys
from topics.catalog import CHANGELOG, TopicPartition
from topics.errors import ServiceError

#: The most sessions, jobs and offset ranges of a partition that are listed; the rest are counted.
NAMED: Final = 20


def salvage(settings: Settings) -> list[str]:
    """Repair a damaged data directory; return lines that report what was kept and what is lost.

    Raises:
        ServiceError: nothing is damaged, a service runs, the log is not on this machine, or the disk is full. Then
            nothing was changed.
    """
    if not isinstance(settings.log, Embedded):
        raise ServiceError("the log is on Kafka: there is nothing to salvage on this machine")
    if not data_directory.contents(settings):
        raise ServiceError(f"there is nothing to salvage in {settings.data}: set EARSHOT_DATA as for the service")
    database = database_file(settings)
    with data_directory.stopped(settings):
        lanes = lanes_of(settings)
        change = max(Marks(data_directory.tables(lane) / MARKS).change for lane in lanes)
        lines: list[str] = []
        for lane in lanes:
            log = data_directory.log(lane)
            scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=log.parent))
            try:
                lines += _salvage(lane, log, database, change, scratch)
            except OSError as error:
                raise ServiceError(f"nothing was salvaged: {error.strerror} ({error.filename})") from error
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    if not lines:
        raise ServiceError(
            f"the log and the database in {settings.data} can be read whole, and nothing was changed; a start makes "
            "damaged tables again by itself"
        )
    return lines


def _salvage(settings: Settings, log: Path, database: Path | None, change: int, scratch: Path) -> list[str]:
    """Repair the log of a lane, and with the first one the database; return no lines if nothing is damaged."""
    tables = data_directory.tables(settings)
    marks = Marks(tables / MARKS)
    lines, instead, name = [], {}, None
    if database is not None:
        if fault := _fault(lambda: intact.check(database, change, log.exists())):
            instead[database] = scratch / DATABASE
            lines += [fault, *_mend_database(database, log, scratch)]
        name = log_name(instead.get(database, database))
    if fault := _fault(lambda: store.check(log, marks.group, name, whole=True)):
        instead[log] = scratch / "new"
        lines += [fault, *_mend_log(settings, log, scratch, name)]
    if not instead:
        return []
    # The database comes first, because a start refuses one whose log is missing. The tables come last, so that another
    # salvage still has them after an interruption.
    aside = [log] if log in instead else []
    if database in instead and database is not None:
        aside[:0] = [database.with_name(database.name + suffix) for suffix in reversed(SUFFIXES)]
    made = data_directory.set_aside(settings, [*aside, tables if log in instead else tables / MARKS], instead)
    if log in instead:
        data_directory.note_left_out(settings)
    return [*lines, *(f"What was there is in {path}." for path in made)]


def _fault(look: Callable[[], object]) -> str | None:
    try:
        look()
    except (LogDamaged, intact.DatabaseLost) as error:
        return f"Found: {str(error).removesuffix(f': {REMEDIES}')}."
    return None


def _mend_database(database: Path, log: Path, scratch: Path) -> list[str]:
    for suffix in SUFFIXES[:2]:
        if (file := database.with_name(database.name + suffix)).exists():
            shutil.copyfile(file, scratch / f"damaged{suffix}")
    kept = asyncio.run(copy_readable(scratch / "damaged", scratch / DATABASE))
    if log_name(scratch / DATABASE) is None:
        with embedded.remains(log, scratch / "named") as old:
            if old.name is not None:
                asyncio.run(_note_name(scratch / DATABASE, old.name))
    rows = ", ".join(f"{count} {name}" for name, count in kept.items())
    lines = [f"Rows of the database that were kept: {rows}."]
    if not kept["organizations"]:
        lines.append("All organizations are lost: the next start makes a demo project, as the first one did.")
    elif not kept["keys"]:
        lines.append("All keys are lost: `earshot key rotate PROJECT` and `earshot org rotate-key ORG` make new ones.")
    return lines


async def _note_name(database: Path, name: bytes) -> None:
    opened = Database(f"sqlite+aiosqlite:///{database}")
    try:
        await note_log_name(opened, name)
    finally:
        await opened.close()


def _mend_log(settings: Settings, log: Path, scratch: Path, name: bytes | None) -> list[str]:
    lines: list[str] = []
    with embedded.remains(log, scratch / "old") as old:
        name = name or old.name
        new = NewLog(scratch / "new", name, old.group)
        written = Marks(data_directory.tables(settings) / MARKS).group
        if cut := old.group < written:
            lines.append(f"The log can be read to write {old.group} of {written}: what came later is lost.")
        if not old.topics:
            lines.append("No record of the log can be read: its list of topics is lost, and all audio with it.")
        try:
            partitions = next((count for _, count in old.topics.values()), settings.partition_count)
            topics = dict.fromkeys([*old.topics, *(topic.name for topic in catalog.topics(0))])
            for topic in topics:
                new.topic(topic, partitions)
            for number in range(partitions):
                rows = _Rows(number)
                lines += rows.write(old, new, data_directory.tables(settings), name)
                lost = cut or not old.topics or not rows.whole
                for tp in (TopicPartition(topic, number) for topic in topics if topic != CHANGELOG):
                    kept = new.keep(tp, old, rows.positions.get(tp.topic, 0))
                    lines += _said(tp, kept)
                    lost |= bool(kept.gaps)
                if lost:
                    lines += rows.unsettled()
        finally:
            new.close()
    return lines


def _said(tp: TopicPartition, kept: Kept) -> Iterator[str]:
    name = f"{tp.topic}/{tp.partition}"
    if kept.records:
        yield f"{name}: kept {_count(kept.records, 'record')}, of offsets {kept.first} to {kept.end - 1}."
    if kept.gaps:
        lost = ", ".join(_range(gap) for gap in kept.gaps[:NAMED])
        more = f", and {len(kept.gaps) - NAMED} more ranges" if len(kept.gaps) > NAMED else ""
        yield f"{name}: lost {lost}{more}."


def _range(gap: range) -> str:
    by_a_salvage = " (some skipped by an earlier salvage)" if len(gap) >= SKIPPED else ""
    return f"offset {gap.start}" if len(gap) == 1 else f"offsets {gap.start} to {gap.stop - 1}{by_a_salvage}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


class _Rows:
    """The rows of a partition, from its table and its changelog."""

    def __init__(self, number: int) -> None:
        #: Nothing is missing, as far as is known.
        self.whole = False
        #: The offset of each topic below which everything is folded.
        self.positions: dict[str, int] = {}
        self._tp = TopicPartition(CHANGELOG, number)
        self._next = 0
        #: Ids by the first byte of their rows' keys: heads, and the index of unsettled ids.
        self._ids: dict[bytes, set[bytes]] = {
            keys.SESSION: set(),
            keys.JOB: set(),
            keys.SESSION_OPEN: set(),
            keys.JOB_OPEN: set(),
        }

    def write(self, old: embedded.Remains, new: NewLog, tables: Path, log: bytes | None) -> Iterator[str]:
        """Write a changelog with all known rows of the log named `log`; yield what was kept."""
        end, last_ms = 0, 0
        for record in old.records(self._tp):
            end, last_ms = record.offset + 1, record.timestamp
        with table_remains(tables, self._tp.partition) as table:
            applied = 0
            if table is not None and table.is_of(log) and table.completes(end, last_ms):
                applied, self.whole = table.applied.offset, True
                for key, row in table.rows():
                    self._append(new, StoredRecord(0, table.applied.at, key, row))
        for record in old.records(self._tp):
            if record.offset >= applied:
                self._append(new, record)
        name, sessions, jobs = f"Partition {self._tp.partition}", self._ids[keys.SESSION], self._ids[keys.JOB]
        source = "its table and the log" if self.whole else "what is left of the log; the newest may be missing"
        if sessions or jobs:
            yield f"{name}: kept {_count(len(sessions), 'session')} and {_count(len(jobs), 'job')}, from {source}."
        elif not (self._next or self.whole):
            yield f"{name}: nothing can be read of its sessions and jobs."

    def _append(self, new: NewLog, record: StoredRecord) -> None:
        new.append(self._tp, msgspec.structs.replace(record, offset=self._next))
        self._next += 1
        key = record.key or b""
        if key == keys.POSITIONS and record.value is not None:
            self.positions = decode_folded(record.value).positions
        ids = self._ids.get(key[:1])
        id_, kind = key[1 : 1 + keys.ID_LENGTH], key[1 + keys.ID_LENGTH :]
        if ids is not None and kind in (b"", keys.HEAD):
            ids.discard(id_) if record.value is None else ids.add(id_)

    def unsettled(self) -> Iterator[str]:
        """Yield the sessions and jobs that were unsettled, so they may lack lost records."""
        for kind, what in (keys.SESSION_OPEN, "sessions"), (keys.JOB_OPEN, "jobs"):
            names = sorted(keys.shown(id_.decode()) for id_ in self._ids[kind])
            if names:
                more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
                shown = ", ".join(f"{name}…" for name in names[:NAMED])
                yield f"Partition {self._tp.partition}: {what} that may lack some of it: {shown}{more}."
