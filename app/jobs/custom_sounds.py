"""Uploads of custom sounds, which a client of the vendor offers and this service refuses."""

from app.http.call import Call
from app.http.descriptions import operation
from app.http.replies import Reply, json_reply
from app.jobs.answers import JobFault
from app.jobs.job_context import JobContext


@operation("POST /custom_sound", origin="public-clients", faults=lambda: (not_taught(),))
async def create_custom_sound(call: Call, context: JobContext) -> Reply:
    """Upload a custom sound.

    Not supported; the answer tells the vendor's client why.
    """
    return not_taught()


@operation("PUT /custom_sound/upload/finished", origin="public-clients", faults=lambda: (not_taught(),))
async def finish_custom_sound(call: Call, context: JobContext) -> Reply:
    """End the upload of a custom sound.

    Not supported either.
    """
    return not_taught()


def not_taught() -> Reply:
    message = (
        "custom sounds are not uploaded to this service: "
        "its operator teaches a model a sound with `earshot models train-tag` (docs/models.md)"
    )
    return json_reply(JobFault(message), 501)
