"""Uploads of custom sounds, which a client of the vendor offers and this service refuses."""

from app.http.call import Call
from app.http.replies import Reply, json_reply
from app.jobs.answers import JobFault
from app.jobs.job_context import JobContext


async def create_custom_sound(call: Call, context: JobContext) -> Reply:
    """POST /api/v1/custom_sound: 501, with what to do instead."""
    return not_taught()


async def finish_custom_sound(call: Call, context: JobContext) -> Reply:
    """PUT /api/v1/custom_sound/upload/finished: the same."""
    return not_taught()


def not_taught() -> Reply:
    message = (
        "custom sounds are not uploaded to this service: "
        "its operator teaches a model a sound with `earshot models train-tag` (docs/models.md)"
    )
    return json_reply(JobFault(message), 501)
