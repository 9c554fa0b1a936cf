"""The list of a project's jobs."""

from app.http.call import Call
from app.http.replies import Reply
from app.jobs.job_context import JobContext
from topics.geometry import seconds
from topics.ports.jobs import JobView
from topics.times import iso_time


async def list_jobs(call: Call, context: JobContext) -> Reply:
    """GET /api/v1/jobs: the project's own jobs, newest first."""
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
