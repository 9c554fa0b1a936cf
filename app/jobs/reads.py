"""Operations on one job: what it has found so far, and its removal."""

from __future__ import annotations

from itertools import chain

import orjson
import structlog

from app.http.operation import Call
from app.http.replies import JSON, NO_CONTENT, Reply, StreamReply
from app.http.streaming import paced, replied
from app.jobs.errors import refused, unknown
from app.jobs.rendering import Reading, timestamp
from topics.jobs.records import Removed
from topics.keys import is_id

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def read_job(call: Call) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}: the state, and the entries of the services that have ended."""
    reading = await owned(call)
    head = reading.head
    opening = orjson.dumps({"job_id": reading.job, "status": head.state, "created_at": timestamp(head.created)})
    result = call.edge.results.result(reading)
    return await replied(paced(chain((opening[:-1] + b',"result":',), result, (b"}",))), JSON)


async def delete_job(call: Call) -> Reply:
    """DELETE /api/v1/jobs/{id}: nothing of the job is served any more, and what runs for it is stopped."""
    reading = await owned(call)
    verdict = await call.edge.jobs.submit(reading.job, Removed(next(call.edge.commands)))
    if verdict.status != 204:
        raise refused(verdict)
    log.info("job deleted", job=reading.job[:8])
    return NO_CONTENT


async def owned(call: Call) -> Reading:
    """Return the job of the path, for a key of its own project.

    Raises:
        Unauthorized, DirectoryDown: the key is not good, or cannot be judged.
        NotFound: there is no such job, or another project has it.
    """
    principal = await call.principal()
    reading = known(call)
    if reading.view.accepted.project != principal.project:
        raise unknown()
    return reading


def known(call: Call) -> Reading:
    """Return the job of the path, for whoever knows its id.

    Raises:
        NotFound: there is no such job.
    """
    job = call.path("job_id")
    view = call.edge.jobs.view(job) if is_id(job) else None
    if view is None:
        raise unknown()
    return Reading(job, view)
