"""The ledger against the log: what the records of jobs say was done, and where the ledger says something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from infra.db.ledger import SqlLedger, as_stored
from streams.driver.history import History, Logged
from topics import catalog, codec
from topics.errors import RecordError
from topics.jobs.law import EntryState, JobHead, JobState, fold_command, fold_result
from topics.jobs.options import Service
from topics.jobs.records import Accepted, Finished, JobCommand, JobResult
from topics.ports import Charge

REMOVED: Final = 204
FOR_EVER: Final = 1 << 63

Key = tuple[str, Service]


class Difference(msgspec.Struct, frozen=True, order=True):
    """A service of a job that the ledger and the log do not agree on."""

    job: str
    service: Service
    difference: str


class Recount(msgspec.Struct, frozen=True):
    """What came of a comparison."""

    #: Jobs compared: all of their records that count are on the log.
    jobs: int
    #: Jobs that the log or the ledger knows of and that were not compared: retention removed records of theirs.
    gone: int
    differences: tuple[Difference, ...]


class _Job(msgspec.Struct):
    """What the log says of a job that was accepted."""

    head: JobHead
    accepted: Accepted
    partition: int
    removed: bool = False
    #: The same id was accepted again after a removal: what belongs to which cannot be told.
    again: bool = False


async def recount(history: History, ledger: SqlLedger) -> Recount:
    """Fold the records of all jobs and compare what succeeded, once per job and service, with the ledger's lines.

    Raises:
        DirectoryDown: the database does not answer.
        ServiceError: the log cannot be read.
    """
    # Read twice, so that a service which works on meanwhile makes no difference: what is in the ledger now must be on
    # the log, and what is on the log must then be in the ledger.
    before = _by_key(await ledger.lines())
    jobs = await _accepted(history)
    lost = await _fold_results(history, jobs)
    after = _by_key(await ledger.lines())
    whole = {name: job for name, job in jobs.items() if name not in lost}
    differences = sorted([*_missing(whole, after), *_invented(whole, before)])
    known = jobs.keys() | lost | {name for name, _ in before}
    return Recount(len(whole), len(known - whole.keys()), tuple(differences))


def _by_key(charges: Sequence[Charge]) -> dict[Key, Charge]:
    return {(charge.job, charge.service): charge for charge in charges}


async def _accepted(history: History) -> dict[str, _Job]:
    """Fold the commands; of a job that was removed, what it was then."""
    heads: dict[str, JobHead] = {}
    jobs: dict[str, _Job] = {}
    async for record in history.records(catalog.JOB_COMMANDS):
        name, command = _name(record), _command(record)
        job = jobs.get(name)
        if command is None or (job is not None and job.removed):
            if job is not None and isinstance(command, Accepted):
                job.again = True
            continue
        head = heads.get(name)
        if head is None and isinstance(command, Accepted):
            # Retention removed its parts.
            head = JobHead(JobState.RECEIVING, -1, record.timestamp, command.upload, command.parts)
        step = fold_command(head, command, record.offset, record.timestamp)
        if step.head is None:
            heads.pop(name, None)
        else:
            heads[name] = step.head
        if job is not None:
            job.removed = step.verdict.status == REMOVED
        elif isinstance(command, Accepted) and step.head is not None and step.head.visible:
            jobs[name] = _Job(step.head, command, record.partition)
    return jobs


async def _fold_results(history: History, jobs: Mapping[str, _Job]) -> set[str]:
    """Fold the results into the jobs' heads; return the jobs whose records are not all on the log."""
    trimmed = {number for number, offset in (await history.begins(catalog.JOB_RESULTS)).items() if offset}
    oldest: dict[int, int] = {}
    lost = set()
    async for record in history.records(catalog.JOB_RESULTS):
        oldest.setdefault(record.partition, record.timestamp)
        name, result = _name(record), _result(record)
        if result is None:
            continue
        if job := jobs.get(name):
            job.head = fold_result(job.head, result).head or job.head
        elif isinstance(result, Finished):
            lost.add(name)
    for name, job in jobs.items():
        late = job.partition in trimmed and oldest.get(job.partition, FOR_EVER) >= job.head.created
        if late or job.again:
            lost.add(name)
    return lost


def _missing(jobs: Mapping[str, _Job], ledger: Mapping[Key, Charge]) -> Iterator[Difference]:
    """Yield what the log says was done and the ledger does not have, or has otherwise."""
    for name, job in jobs.items():
        for charge, billed in _charges(name, job):
            found = ledger.get((name, charge.service))
            if found is not None:
                if found != charge:
                    yield Difference(name, charge.service, _otherwise(charge, found))
            elif billed:
                yield Difference(name, charge.service, "not in the ledger, though the log says that it was written")
            elif not job.removed:  # else the removal may have come first, which is no success
                yield Difference(name, charge.service, "not in the ledger yet; a node writes it when it runs")


def _invented(jobs: Mapping[str, _Job], ledger: Mapping[Key, Charge]) -> Iterator[Difference]:
    """Yield what the ledger has and the log has no success of."""
    for name, service in ledger:
        if name in jobs and service not in {charge.service for charge, _ in _charges(name, jobs[name])}:
            yield Difference(name, service, "in the ledger, but no success is on the log")


def _charges(name: str, job: _Job) -> Iterator[tuple[Charge, bool]]:
    """Yield what each success of a job costs, and whether the log says that the ledger has it."""
    for entry in job.head.entries:
        if entry.state is EntryState.SUCCESS:
            who = (job.accepted.project, job.accepted.organization)
            charge = Charge(name, entry.service, *who, entry.audio_ms, entry.model, job.head.created)
            yield as_stored(charge), entry.billed


def _otherwise(log: Charge, ledger: Charge) -> str:
    pairs = zip(log.__struct_fields__, msgspec.structs.astuple(log), msgspec.structs.astuple(ledger), strict=True)
    return "; ".join(
        f"{name} is {wrong} in the ledger, {right} on the log" for name, right, wrong in pairs if right != wrong
    )


def _name(record: Logged) -> str:
    return (record.key or b"").decode("ascii", "replace")


def _command(record: Logged) -> JobCommand | None:
    try:
        return codec.decode_job_command(record.value)
    except RecordError:  # the service parked it and went on
        return None


def _result(record: Logged) -> JobResult | None:
    try:
        return codec.decode_job_result(record.value)
    except RecordError:
        return None
