"""Compares the ledger with the log and reports differences.

The records of a job are the best source. If retention removed some of them (the embedded log deletes records that
nobody needs), the job's rows are used: the changelog keeps them as long as the job.
"""

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from infra.db.ledger import SqlLedger, as_stored
from infra.db.session_recount import SessionCount, count_sessions, newest_rows, readable, session_differences
from streams.log import LogHistory, PartitionRecord
from topics import catalog, keys, record_codec
from topics.folding import Arrival
from topics.jobs import rows
from topics.jobs.records import Accepted, Finished
from topics.jobs.result_rules import fold_result
from topics.jobs.rules import EntryState, JobHead, JobState, fold_command
from topics.ports.ledger import Charge, MeteredService

REMOVED: Final = 204
FOREVER: Final = 1 << 63

Key = tuple[str, MeteredService, int]


class Difference(msgspec.Struct, frozen=True, order=True):
    """A service of a job, or a step of a session, on which the ledger and the log disagree."""

    #: The visible part of the id.
    job: str
    service: MeteredService
    difference: str


class Recount(msgspec.Struct, frozen=True):
    """The outcome of a comparison."""

    #: Jobs compared.
    jobs: int
    #: How many of them by their rows, because the log lacks some of their records.
    by_rows: int
    #: Sessions compared.
    sessions: int
    #: Jobs and sessions in the log or the ledger that could not be compared, because neither records nor rows remain.
    gone: int
    differences: tuple[Difference, ...]


class _Job(msgspec.Struct):
    """An accepted job according to the log."""

    head: JobHead
    accepted: Accepted
    partition: int
    removed: bool = False
    #: The same id was accepted again after a removal, so their records cannot be told apart.
    again: bool = False


async def recount(history: LogHistory, ledger: SqlLedger) -> Recount:
    """Fold the records of all jobs and sessions and compare their cost with the ledger's lines.

    Raises:
        DirectoryDown: the database does not answer.
        ServiceError: the log cannot be read.
    """
    # Read the ledger twice, so that a running service causes no differences: every line of the first reading must be on
    # the log, and every charge on the log must be in the second.
    before = await _by_key(ledger)
    kept = await _jobs_by_rows(history)
    jobs = await _jobs_by_commands(history)
    lost = await _fold_results(history, jobs, kept)
    sessions = await count_sessions(history)
    after = await _by_key(ledger)
    whole = {name: job for name, job in jobs.items() if name not in lost}
    compared = kept | whole
    differences = sorted(
        [*_missing(compared, after), *_invented(compared, before), *_sessions(sessions, before, after)]
    )
    gone = (jobs.keys() | lost | {name for name, _, _ in before}) - compared.keys() - sessions.keys()
    by_rows = len(compared) - len(whole)
    return Recount(len(compared), by_rows, len(sessions), len(gone), tuple(differences))


async def _by_key(ledger: SqlLedger) -> dict[Key, Charge]:
    async with aclosing(ledger.lines()) as pages:
        return {(charge.job, charge.service, charge.step): charge async for page in pages for charge in page}


async def _jobs_by_rows(history: LogHistory) -> dict[str, _Job]:
    """Read the rows of kept jobs, and of removed jobs that are not completely in the ledger."""
    rows_by_key = await newest_rows(history, keys.JOB)
    jobs = {}
    for key, record in rows_by_key.items():
        name = key[1:-1].decode("ascii")
        acceptance = rows_by_key.get(keys.row_key(keys.JOB, name, keys.REQUEST))
        if key[-1:] == keys.HEAD and acceptance is not None:
            head, accepted = rows.head(record.value), rows.accepted(acceptance.value)
            if head is not None and accepted is not None and head.state is not JobState.RECEIVING:
                jobs[name] = _Job(head, accepted, record.partition)
    return jobs


async def _jobs_by_commands(history: LogHistory) -> dict[str, _Job]:
    """Fold the commands; return a removed job as it was when removed."""
    heads: dict[str, JobHead] = {}
    jobs: dict[str, _Job] = {}
    async with aclosing(history.records(catalog.JOB_COMMANDS)) as records:
        async for record in records:
            name, command = _name(record), readable(record_codec.decode_job_command, record.value)
            job = jobs.get(name)
            if command is None or (job is not None and job.removed):
                if job is not None and isinstance(command, Accepted):
                    job.again = True
                continue
            head = heads.get(name)
            if head is None and isinstance(command, Accepted):
                # Retention removed its parts.
                head = JobHead(JobState.RECEIVING, -1, record.timestamp, command.upload, command.parts)
            step = fold_command(head, command, Arrival(record.offset, record.timestamp))
            if step.head is None:
                heads.pop(name, None)
            else:
                heads[name] = step.head
            if job is not None:
                job.removed = step.verdict.status == REMOVED
            elif isinstance(command, Accepted) and step.head is not None and step.head.visible:
                jobs[name] = _Job(step.head, command, record.partition)
    return jobs


async def _fold_results(history: LogHistory, jobs: Mapping[str, _Job], kept: Mapping[str, _Job]) -> set[str]:
    """Fold the results into the heads of `jobs` and `kept`; return the jobs that lack records on the log."""
    trimmed = {number for number, offset in (await history.first_offsets(catalog.JOB_RESULTS)).items() if offset}
    oldest: dict[int, int] = {}
    lost = set()
    async with aclosing(history.records(catalog.JOB_RESULTS)) as records:
        async for record in records:
            oldest.setdefault(record.partition, record.timestamp)
            name, result = _name(record), readable(record_codec.decode_job_result, record.value)
            if result is None:
                continue
            for job in filter(None, (jobs.get(name), kept.get(name))):
                job.head = fold_result(job.head, result).head or job.head
            if isinstance(result, Finished) and name not in jobs:
                lost.add(name)
    for name, job in jobs.items():
        late = job.partition in trimmed and oldest.get(job.partition, FOREVER) >= job.head.created
        if late or job.again:
            lost.add(name)
    return lost


def _missing(jobs: Mapping[str, _Job], ledger: Mapping[Key, Charge]) -> Iterator[Difference]:
    """Yield successes on the log that the ledger lacks or has with other values."""
    for name, job in jobs.items():
        for charge, billed in _charges(name, job):
            line = ledger.get((name, charge.service, 0))
            if line is not None:
                difference = _otherwise(charge, line)
            elif billed:
                difference = "not in the ledger, though the log says that it was written"
            elif job.removed:  # perhaps before the success
                continue
            else:
                difference = "not in the ledger yet; a node writes it when it runs"
            if difference:
                yield Difference(keys.shown(name), charge.service, difference)


def _invented(jobs: Mapping[str, _Job], ledger: Mapping[Key, Charge]) -> Iterator[Difference]:
    """Yield lines of the ledger without a success on the log."""
    for name, service, _ in ledger:
        job = jobs.get(name)
        # The row of a removed job lists only the services that are not in the ledger yet.
        if job is None or job.head.state is JobState.REMOVED:
            continue
        if service not in {charge.service for charge, _ in _charges(name, job)}:
            yield Difference(keys.shown(name), service, "in the ledger, but no success is on the log")


def _sessions(
    sessions: Mapping[str, SessionCount], before: Mapping[Key, Charge], after: Mapping[Key, Charge]
) -> Iterator[Difference]:
    first, last = (
        {(name, step): line for (name, service, step), line in ledger.items() if service is MeteredService.SESSION}
        for ledger in (before, after)
    )
    for name, charge, line in session_differences(sessions, first, last):
        if charge is None:
            difference = "in the ledger, but its windows are not on the log"
        elif line is None:
            difference = f"step {charge.step} is not in the ledger; a node writes it when it runs, if it did not yet"
        else:
            difference = _otherwise(charge, line)
        yield Difference(name, MeteredService.SESSION, difference)


def _charges(name: str, job: _Job) -> Iterator[tuple[Charge, bool]]:
    """Yield the charge of each success of a job, and whether the log says that the ledger has it."""
    for entry in job.head.entries:
        if entry.state is EntryState.SUCCESS:
            who = (job.accepted.project, job.accepted.organization)
            service = MeteredService(entry.service)
            charge = Charge(name, service, *who, entry.audio_ms, entry.model, job.head.created)
            yield as_stored(charge), entry.billed


def _otherwise(log: Charge, ledger: Charge) -> str:
    """Return the fields in which two charges differ, or ""."""
    pairs = zip(log.__struct_fields__, msgspec.structs.astuple(log), msgspec.structs.astuple(ledger), strict=True)
    return "; ".join(
        f"{name} is {wrong} in the ledger, {right} on the log" for name, right, wrong in pairs if right != wrong
    )


def _name(record: PartitionRecord) -> str:
    return (record.key or b"").decode("ascii", "replace")
