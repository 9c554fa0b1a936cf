"""Waits for the job of a request whose client has only this connection.

A client that hangs up has no job id and cannot read the job later, so the job is removed and its remaining work is
dropped. With an Idempotency-Key, the job continues, and the same request gets its result.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from app.jobs.errors import job_not_found
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from topics import keys
from topics.errors import EarshotError
from topics.jobs.records import Removed
from topics.jobs.rules import JobState

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@asynccontextmanager
async def removed_unless_answered(context: JobContext, job: str, keyed: bool) -> AsyncIterator[None]:
    """Remove a job that cannot be answered, unless its request has an Idempotency-Key (`keyed`)."""
    try:
        yield
    except BaseException:
        if not keyed:
            with suppress(EarshotError):
                await context.jobs.submit(job, Removed(next(context.commands)))
                log.info("job removed, as nobody waits for it", job=keys.shown(job))
        raise


async def readings(context: JobContext, job: str, seconds: float) -> AsyncGenerator[JobReading, None]:
    """Yield a job at each change, and after some seconds without one; the last reading is of the finished job.

    Raises:
        NotFound: it was removed.
        Unavailable: it moved to another node, or this node is stopping.
    """
    # Register before the first reading, so that no change in between is missed.
    follower = context.jobs.follow(job)
    try:
        while True:
            view = context.jobs.view(job)
            if view is None:
                raise job_not_found()
            yield JobReading(job, view)
            if view.head.state is JobState.COMPLETED:
                return
            await follower.changed(seconds)
    finally:
        follower.close()
