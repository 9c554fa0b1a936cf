"""The expected final state: everything acknowledged, once, in order, and nothing deleted."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from streams.folding.draft import Draft
from streams.folding.head_store import above
from streams.log import StoredRecord
from streams.node.owner import PartitionOwner
from streams.node.sessions import SessionWorkload
from streams.sessions.store import SessionStore
from streams.tables.partition_rows import PartitionRows
from tests.simulation import alarms
from tests.simulation.clients import PROJECTS, Session, shown
from tests.simulation.log import Stored, Topic
from tests.simulation.scorer import TAGS, window
from tests.simulation.store import Disk
from topics import keys, record_codec
from topics.catalog import CHANGELOG, TopicPartition
from topics.ports.lists import ListQuery
from topics.sessions.rules import SessionHead, SessionState

Wrong = Callable[[str], None]


def settled(session: Session, store: SessionStore) -> bool:
    """Return whether a session will not change any more."""
    head = store.head(session.id)
    if session.deleted:
        return head is None
    if head is None or head.error is not None:
        return True
    if session.kind == "file" and not session.sealed:
        return True
    if session.sealed:
        return head.finished and not head.unmetered
    return head.cursor.chunks >= head.next and not head.has_unheard


def compare(sessions: Iterable[Session], stores: Mapping[int, SessionStore], where: str, wrong: Wrong) -> None:
    sessions = list(sessions)
    for session in sessions:
        number = keys.partition_of(session.id, len(stores))
        for fault in _faults(session, stores[number]):
            wrong(f"{where}: {session.id} in partition {number}: {fault}")
        if session.deleted and (left := rows_left(session, stores[number])):
            wrong(f"{where}: {session.id} in partition {number} was deleted, and left {left} rows")
    kept = {session.id for session in sessions if not session.deleted}
    deleted = {session.id for session in sessions if session.deleted}
    for project in PROJECTS:
        listed = [one.id for store in stores.values() for one in store.listed(ListQuery(project))]
        expected = {session.id for session in sessions if session.project == project and session.id in kept}
        for id in expected - set(listed):
            wrong(f"{where}: {id} is in no list of {project}")
        for id in deleted & set(listed):
            wrong(f"{where}: {id} was deleted, and is in a list")
        if len(set(listed)) != len(listed):
            wrong(f"{where}: an entry is twice in the list of {project}")


def compare_standby(
    sessions: Iterable[Session], number: int, partitions: int, rows: PartitionRows, wrong: Wrong
) -> None:
    store = SessionStore(rows)
    for session in sessions:
        if keys.partition_of(session.id, partitions) == number:
            for fault in _faults(session, store):
                wrong(f"stand-by: {session.id} in partition {number}: {fault}")


def rows_left(session: Session, store: SessionStore) -> int:
    prefix = store.prefix(session.id)
    return sum(1 for _ in store.partition.scan(prefix, above(prefix))) + alarms.rows_of(session.id, store)


def _faults(session: Session, store: SessionStore) -> Iterable[str]:
    head = store.head(session.id)
    if session.deleted:
        if head is not None and head.state is not SessionState.DELETED:
            yield f"it was deleted, and shows: {head}"
        return
    if head is None or store.opened(session.id) is None:
        yield f"it is lost: {head}, {store.opened(session.id)}"
        return
    if head.error is not None:
        yield f"it failed: {head.error}"
        return
    if head.next != len(session.chunks):
        yield f"it has {head.next} chunks of {len(session.chunks)}"
    expected_state = SessionState.READONLY if session.sealed else SessionState.WRITABLE
    if head.state is not expected_state:
        yield f"it is {head.state}, not {expected_state}"
    truth = list(map(window, session.chunks)) if session.sealed or session.kind == "stream" else []
    scores = shown(store, session.id)
    # Another kind of processor may have computed the last bytes.
    found = [_alike(scores[at : at + TAGS]) for at in range(0, len(scores), TAGS)]
    if found != truth or head.windows != len(truth):
        yield f"its scores are {scores.hex(' ', 4)}, not {b''.join(truth).hex(' ', 4)} ({head.windows} windows)"
    if not scores.startswith(session.shown):
        yield f"its scores are {scores.hex(' ', 4)}, and a reader saw {session.shown.hex(' ', 4)}"
    if session.sealed and not head.finished:
        yield "its analysis has no end"
    if session.kind == "stream":
        yield from _source_faults(session, store, head)
    yield from alarms.faults(session, store)


def _source_faults(session: Session, store: SessionStore, head: SessionHead) -> Iterable[str]:
    """Compare what the client said about its source: an attempt that it gave up may have noted it once more."""
    notes = store.notes(session.id, 0)
    if [note.number for note in notes] != list(range(len(notes))) or head.heard != len(notes):
        yield f"it has heard {head.heard} of its notes {[note.number for note in notes]}"
    told = [note for note in notes if note.told]
    if list(dict.fromkeys(note.reason for note in told)) != session.notes:
        yield f"its notes are {[note.reason for note in told]}, not {session.notes}"
    for before, note in pairwise([None, *notes]):
        was_lost = before is not None and before.event == "source.lost"
        if note is not None and not note.told and was_lost == (note.event == "source.lost"):
            yield f"the service noted {note.event} after {before}"
    if any(note.window != note.chunk for note in notes):
        yield f"its notes come before other windows: {notes}"
    position, told_at = 0, 0
    for data, captured in zip(session.chunks, session.captured, strict=True):
        told_at = captured or told_at
        if told_at and store.time_of(session.id, position) != (told_at, True):
            yield f"the audio at {position} ms is of {store.time_of(session.id, position)}, not {told_at}"
        position, told_at = position + len(data), told_at and told_at + len(data)


def _alike(scores: bytes) -> bytes:
    return scores[: TAGS - 1] + b"\0"


class _Nowhere:
    """A writer for tables without a changelog."""

    def append_rows(self, *rows: object) -> None: ...


async def rebuilt(number: int, topic: Topic, disk: Disk, workload: SessionWorkload) -> SessionStore:
    """Return the sessions of a table rebuilt from the changelog, after the checks of its next owner."""
    writer: Any = _Nowhere()
    database: Any = disk.open(number)
    rows = PartitionRows(number, database, writer, lambda: 0)
    records = [StoredRecord(one.offset, one.timestamp, one.key, one.value, _epoch(one)) for one in topic.records]
    if records:
        rows.apply(records)
    owner = PartitionOwner(number)
    owner.take_rows(rows)
    await workload.survey(owner)
    early = owner.early[workload.commands]
    for id in early.unbilled:
        _bill_again(id, owner.sessions, workload)
    for id in early.leftovers:
        while not owner.sessions.purge(id):
            pass
    return owner.sessions


def _bill_again(id: str, store: SessionStore, workload: SessionWorkload) -> None:
    """Bill what the changelog does not mark as billed, as the next owner does; the ledger's line is the same."""
    if (due := workload.biller.due(id, store)) is None:
        return
    draft = Draft(store)
    draft.begin()
    # Behind all that was folded.
    workload.intake.fold(draft, StoredRecord(2**60, 0, id.encode(), record_codec.encode(due[1])))
    draft.keep()
    draft.apply()
    workload.intake.forget()


def _epoch(record: Stored) -> int:
    return int.from_bytes(record.headers[0][1], "big") if record.headers else 0


def changelog(number: int) -> TopicPartition:
    return TopicPartition(CHANGELOG, number)
