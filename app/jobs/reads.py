"""Operations on one job: read its result so far, and remove it."""

from itertools import chain
from typing import Final

import msgspec
import structlog

from app.http.call import Call
from app.http.descriptions import Answer, Key, Parameter, json_answer, operation
from app.http.replies import JSON, NO_CONTENT, Reply, StreamReply
from app.http.streaming import in_turn, reply_in_pieces
from app.job_progress import JobId
from app.jobs.answers import JobReport
from app.jobs.errors import job_not_found, refusal_error
from app.jobs.examples import CREATED, FAILED, ID, RESULT, WITH_WORDS
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics import keys
from topics.jobs.records import Removed
from topics.keys import is_id
from topics.times import iso_time

JOB: Final = Parameter("job_id", "path", JobId, "The job.", required=True, example=ID)
#: The project's key, if the deployment asks for it there too.
SHARED_KEY: Final = Key("projectKey", only_with="job_reads_need_key")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@operation(
    "GET /jobs/{job_id}",
    standby=True,
    origin="contract",
    key=PROJECT_KEY,
    parameters=(JOB,),
    answers=json_answer(
        "The job.",
        completed=JobReport(ID, "completed", CREATED, RESULT),
        words=JobReport(ID, "completed", CREATED, WITH_WORDS),
        failed=JobReport(ID, "completed", CREATED, FAILED),
    ),
    faults=(job_not_found(), *BROKEN),
)
async def read_job(call: Call, context: JobContext) -> Reply | StreamReply:
    """Read a job.

    The results so far. The answer comes at once; the event stream reports when a service ends. A job is `completed`
    even if some of its services failed, so look at the `status` of each entry.
    """
    reading = await project_job(call, context)
    head = reading.head
    opening = msgspec.json.encode({"job_id": reading.job, "status": head.state, "created_at": iso_time(head.created)})
    result = context.renderer.result(reading)
    return await reply_in_pieces(
        in_turn(context.turns, reading.holder, chain((opening[:-1] + b',"result":',), result, (b"}",))), JSON
    )


@operation(
    "DELETE /jobs/{job_id}",
    key=PROJECT_KEY,
    parameters=(JOB,),
    answers={204: Answer("Deleted.")},
    faults=(job_not_found(), *BROKEN),
)
async def delete_job(call: Call, context: JobContext) -> Reply:
    """Delete a job.

    It is no longer served, and its running services are stopped.
    """
    reading = await project_job(call, context)
    verdict = await context.jobs.submit(reading.job, Removed(next(context.commands)))
    if verdict.status != 204:
        raise refusal_error(verdict)
    log.info("job deleted", job=keys.shown(reading.job))
    return NO_CONTENT


async def project_job(call: Call, context: JobContext) -> JobReading:
    """Return the job in the path, for a key of its project.

    Raises:
        Unauthorized, DirectoryDown: the key is invalid, or cannot be verified.
        NotFound: there is no such job, or another project has it.
    """
    principal = await context.project_keys.authenticate(call)
    reading = any_job(call, context)
    if reading.view.accepted.project != principal.project:
        raise job_not_found()
    return reading


async def shared_job(call: Call, context: JobContext) -> JobReading:
    """Return the job in the path to anyone who has its id, unless the deployment requires a key as well.

    Raises:
        Unauthorized, DirectoryDown: a key is required, and is invalid or cannot be verified.
        NotFound: there is no such job, or another project has it.
    """
    return await project_job(call, context) if context.options.job_reads_need_key else any_job(call, context)


def any_job(call: Call, context: JobContext) -> JobReading:
    """Return the job in the path without a key: its id is a secret.

    Raises:
        NotFound: there is no such job.
    """
    job = call.path("job_id")
    view = context.jobs.view(job) if is_id(job) else None
    if view is None:
        raise job_not_found()
    return JobReading(job, view)
