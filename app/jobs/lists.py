"""The list of a project's jobs."""

from app.cluster.lists import MissingPart
from app.http.call import Call
from app.http.replies import Reply
from app.jobs.answers import JobPage
from app.jobs.examples import ENDED, LIST_TOKEN, LISTED
from app.jobs.job_context import JobContext
from app.shared_descriptions import listing
from topics.geometry import seconds
from topics.jobs.rules import VISIBLE_STATES
from topics.ports.jobs import JobView
from topics.times import iso_time


@listing(
    "GET /jobs",
    "jobs",
    VISIBLE_STATES,
    first=JobPage([LISTED], LIST_TOKEN),
    last=JobPage([ENDED]),
    incomplete=JobPage([ENDED], missing=MissingPart(21, 64)),
)
async def list_jobs(call: Call, context: JobContext) -> Reply:
    """List the jobs.

    The jobs of the project, newest first.
    """
    principal = await context.project_keys.authenticate(call)
    return await context.list.page(call, principal.project)


def listed_job(time_ms: int, job: str, view: JobView) -> dict[str, object]:
    """Return the list entry of a job; its length is known once a service has ended."""
    source, head = view.accepted.source, view.head
    length_ms = max((entry.audio_ms for entry in head.entries), default=0)
    return {
        "job_id": job,
        "status": head.state,
        "created_at": iso_time(time_ms),
        "services": {entry.service: entry.state for entry in head.entries},
        "filename": source.filename,
        "format": source.format,
        "size_bytes": source.size,
        "seconds": seconds(length_ms) if length_ms else None,
    }
