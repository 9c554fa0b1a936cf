"""A job as server-sent events: progress, entries as they end, and finally the result.

An event's id is a revision of the job; `Last-Event-ID` asks for the changes after it. `partial_result` is `{service,
status, entry}`. For an entry of more than about 64 KiB, it has `results`, their count, in place of `entry`. `error`
means that no result will come on this stream.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
import structlog

from app.http.call import Call
from app.http.replies import StreamReply
from app.http.server_sent import HEADERS, HEARTBEAT, HEARTBEAT_SECONDS, escaped_pieces, json_event
from app.http.streaming import coalesced
from app.job_progress import progress_of
from app.jobs.answers import JobFault
from app.jobs.job_context import JobContext
from app.jobs.reads import shared_job
from app.jobs.rendering import JobReading
from topics import keys
from topics.errors import EarshotError
from topics.jobs.rules import Entry, JobHead, JobState

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Seconds between events that report only progress.
PROGRESS_SECONDS = 0.5
_REVISION_DIGITS: Final = 15


async def follow_job(call: Call, context: JobContext) -> StreamReply:
    """GET /api/v1/jobs/{id}/stream: needs no key unless the deployment requires one, because the id is a secret too."""
    reading = await shared_job(call, context)
    return StreamReply(200, HEADERS.copy(), _events(context, reading.job, _last_revision(call, reading.head)))


def _last_revision(call: Call, head: JobHead) -> int:
    """Return the revision that the client saw last, or none if no such revision exists."""
    event_id = call.header(b"last-event-id")
    revision = int(event_id) if event_id.isdigit() and len(event_id) <= _REVISION_DIGITS else 0
    return revision if revision <= head.revision else 0


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
                    yield _partial_result(context, reading, entry)
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
    for piece in escaped_pieces(coalesced(context.renderer.result(reading))):
        yield piece
        await asyncio.sleep(0)
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
