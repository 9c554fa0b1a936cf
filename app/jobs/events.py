"""A job as server-sent events: progress, entries as they end, and finally the result.

An event's id is a revision of the job; `Last-Event-ID` asks for the changes after it. `partial_result` is `{service,
status, entry}`. For an entry of more than about 64 KiB, it has `results`, their count, in place of `entry`. `error`
means that no result will come on this stream.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from app.http.call import Call
from app.http.descriptions import Parameter, event_answer, fault_of, operation
from app.http.replies import StreamReply
from app.http.server_sent import HEADERS, HEARTBEAT, HEARTBEAT_SECONDS, escaped, json_event
from app.http.streaming import coalesced, in_turn
from app.job_progress import progress_of
from app.jobs.answers import JobFault
from app.jobs.errors import job_not_found
from app.jobs.examples import EVENTS, STREAM
from app.jobs.job_context import JobContext
from app.jobs.reads import JOB, SHARED_KEY, shared_job
from app.jobs.rendering import JobReading
from app.shared_descriptions import BROKEN, NO_BUFFERS
from topics import keys
from topics.errors import BadRequest, EarshotError, Unavailable
from topics.jobs.rules import Entry, JobState

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Seconds between events that report only progress.
PROGRESS_SECONDS = 0.5
_REVISION_DIGITS: Final = 15
LAST_EVENT: Final = Parameter(
    "Last-Event-ID", "header", str, "Id of the last event you read: later ones follow.", example="2"
)


@operation(
    "GET /jobs/{job_id}/stream",
    standby=True,
    origin="public-clients",
    key=SHARED_KEY,
    parameters=(JOB, LAST_EVENT),
    answers=event_answer(EVENTS, {"sounds": STREAM}, NO_BUFFERS),
    faults=lambda: (fault_of(parse_revision, "abc"), job_not_found(), *BROKEN),
)
async def follow_job(call: Call, context: JobContext) -> StreamReply:
    """Follow a job.

    Server-sent events to the end of the job. `progress` reports its progress, `partial_result` the end of a service,
    `completed` the result, and `error` that no result will come here. A comment comes every {HEARTBEAT_SECONDS:g} s of
    silence. An event is `event: `, `id: ` and one `data: ` line. Needs no key, unless the deployment asks for the
    project's key (`EARSHOT_JOB_READS_NEED_KEY`).
    """
    reading = await shared_job(call, context)
    revision = parse_revision(call.header(b"last-event-id").decode("latin-1"))
    if reading.view.standby and revision > reading.head.revision:
        raise Unavailable("the stand-by does not have this event")
    # Of another life of the job: all of it follows.
    known = revision if revision <= reading.head.revision else 0
    return StreamReply(200, HEADERS.copy(), _events(context, reading.job, known))


def parse_revision(text: str) -> int:
    """Return the revision in `Last-Event-ID`, 0 if it is empty.

    Raises:
        BadRequest: it is no revision.
    """
    if text and not (text.isascii() and text.isdigit() and len(text) <= _REVISION_DIGITS):
        raise BadRequest(f"Last-Event-ID: {text[:40]!r} is not the id of an event of a job")
    return int(text or 0)


async def _events(context: JobContext, job: str, last_revision: int) -> AsyncGenerator[bytes, None]:
    clock = asyncio.get_running_loop().time
    # Register before the first reading, so that no change in between is missed.
    follower = context.jobs.follow(job)
    try:
        # A client that reconnects and has missed nothing gets an event at once, as a sign of life.
        spoke, progress_due = clock() - HEARTBEAT_SECONDS, 0.0
        while True:
            view = context.jobs.view(job)
            if view is None:
                yield json_event("error", JobFault("the job was removed"))
                return
            reading = JobReading(job, view)
            head, completed = view.head, view.head.state is JobState.COMPLETED
            entries = [entry for entry in head.entries if entry.ended and entry.revision > last_revision]
            if entries or completed or (head.revision > last_revision and clock() >= progress_due):
                for entry in sorted(entries, key=lambda entry: entry.revision):
                    yield await context.turns.run(reading.holder, _partial_result, context, reading, entry)
                if head.revision > last_revision:
                    yield json_event("progress", progress_of(job, head), head.revision)
                last_revision, spoke = head.revision, clock()
                progress_due = spoke + PROGRESS_SECONDS
            elif clock() >= spoke + HEARTBEAT_SECONDS:
                yield HEARTBEAT
                spoke = clock()
            if completed:
                break
            due = spoke + HEARTBEAT_SECONDS
            await follower.changed(
                max(0.0, (min(due, progress_due) if head.revision > last_revision else due) - clock())
            )
    except EarshotError as error:
        log.info("job is followed no longer", job=keys.shown(job), reason=str(error))
        yield json_event("error", JobFault("this node no longer has the job: connect again with Last-Event-ID"))
        return
    finally:
        follower.close()
    yield b"event: completed\nid: %d\ndata: " % head.revision
    async with aclosing(in_turn(context.turns, reading.holder, context.renderer.result(reading))) as pieces:
        async for piece in pieces:
            yield escaped(piece)
    yield b"\n\n"


def _partial_result(context: JobContext, reading: JobReading, entry: Entry) -> bytes:
    pieces = coalesced(context.renderer.entry(reading, entry))
    first, second = next(pieces), next(pieces, None)
    content: dict[str, object] = {"service": entry.service, "status": entry.state}
    if second is None:
        content["entry"] = msgspec.Raw(first)
    else:
        content["results"] = context.renderer.count(reading, entry)
    return json_event("partial_result", content, entry.revision)
