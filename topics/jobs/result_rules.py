"""The rules of a job's results: the effect of each on its head.

A service may run several times, for example on a node that died and on the next owner. Each run has a name, and only
the run that ended an entry counts.
"""

from typing import Final

import msgspec

from topics.folding import Effect, Step
from topics.jobs.records import Billed, Finished, JobResult, Portion, Started, Stopped
from topics.jobs.rules import Entry, EntryState, JobHead, JobState

LOST: Final = "a part of the result was lost"


def fold_result(head: JobHead | None, result: JobResult, at: int = 0) -> Step[JobHead]:
    """Apply a result of log time `at` (ms), new or redelivered; ignore results of superseded runs."""
    if head is None or head.state is JobState.RECEIVING:
        return Step(head)
    if isinstance(result, Billed):
        return _billed(head, result)
    entry = head.entry(result.service)
    if entry is None or head.state is JobState.REMOVED:
        return Step(head)
    if isinstance(result, Started):
        return _started(head, entry, result)
    if entry.run != result.run:
        return Step(head)
    if isinstance(result, Stopped):
        return _stopped(head, entry, result)
    return _portion(head, entry, result) if isinstance(result, Portion) else _finished(head, entry, result, at)


def _started(head: JobHead, entry: Entry, result: Started) -> Step[JobHead]:
    if entry.ended or entry.run == result.run:
        return Step(head)
    new_entry = Entry(
        entry.service,
        EntryState.RUNNING,
        result.run,
        furthest=entry.furthest,
        kills=result.kills,
        begun_by=result.lives,
    )
    return Step(_with_entry(head, new_entry))


def _stopped(head: JobHead, entry: Entry, result: Stopped) -> Step[JobHead]:
    # A portion may have reset the count since.
    if len(entry.begun_by) <= len(result.lives):
        return Step(head)
    counted = msgspec.structs.replace(entry, begun_by=result.lives)
    entries = tuple(counted if other is entry else other for other in head.entries)
    return Step(msgspec.structs.replace(head, entries=entries))


def _portion(head: JobHead, entry: Entry, result: Portion) -> Step[JobHead]:
    if result.number < entry.portions:
        return Step(head, (Effect.KEEP_RESULT,))
    if entry.ended or result.number > entry.portions:
        return Step(head)  # An earlier portion was parked; the run's `Finished` has the right number.
    portions = result.number + 1
    further = portions > entry.furthest
    grown = msgspec.structs.replace(
        entry,
        portions=portions,
        done=result.done,
        furthest=max(portions, entry.furthest),
        kills=0 if further else entry.kills,
        begun_by=() if further else entry.begun_by,
    )
    return Step(_with_entry(head, grown), (Effect.KEEP_RESULT,))


def _finished(head: JobHead, entry: Entry, result: Finished, at: int) -> Step[JobHead]:
    if entry.ended:
        return Step(head, _end_effects(head, entry))
    error = result.error if result.portions == entry.portions else result.error or LOST
    state = EntryState.SUCCESS if error is None else EntryState.ERROR
    new_entry = msgspec.structs.replace(
        entry,
        state=state,
        done=1.0,
        error=error,
        audio_ms=result.audio_ms,
        model=result.model,
        warnings=result.warnings,
        # A service that works on another's results does not measure the audio.
        silence_ms=max(result.silence_ms, *(other.silence_ms for other in head.entries)),
    )
    new_head = msgspec.structs.replace(_with_entry(head, new_entry), ended_at=at)
    return Step(new_head, _end_effects(new_head, new_entry))


def _end_effects(head: JobHead, entry: Entry) -> tuple[Effect, ...]:
    bill = (Effect.BILL,) if entry.state is EntryState.SUCCESS and not entry.billed else ()
    if head.keeps_audio:
        return bill
    return (*bill, Effect.DROP_AUDIO if head.state is JobState.COMPLETED else Effect.WORK)


def _billed(head: JobHead, result: Billed) -> Step[JobHead]:
    billed = {entry.service for entry in head.unbilled}.intersection(result.services)
    entries = tuple(
        msgspec.structs.replace(entry, billed=True) if entry.service in billed else entry for entry in head.entries
    )
    new_head = msgspec.structs.replace(head, entries=entries)
    if head.state is JobState.REMOVED:
        rest = msgspec.structs.replace(new_head, entries=new_head.unbilled)
        return Step(rest, () if rest.entries else (Effect.DROP_AUDIO, Effect.ERASE))
    return Step(new_head)


def _with_entry(head: JobHead, entry: Entry) -> JobHead:
    revision = head.revision + 1
    entry = msgspec.structs.replace(entry, revision=revision)
    entries = tuple(entry if other.service is entry.service else other for other in head.entries)
    state = JobState.COMPLETED if all(other.ended for other in entries) else JobState.PROCESSING
    return msgspec.structs.replace(head, state=state, entries=entries, revision=revision)
