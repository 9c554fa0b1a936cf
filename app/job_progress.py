"""Progress of a job, for its own stream and its project's."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from topics.jobs.rules import JobHead
from topics.keys import ID_LENGTH

#: Highest progress of a service that has not ended.
MOST_DONE: Final = 0.99

JobId = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9A-Za-z]{{{ID_LENGTH}}}$",
        description="Identifier of the job. It opens the event stream and captions, unless the deployment asks for "
        "the project's key.",
    ),
]
Share = Annotated[float, Meta(ge=0, le=1)]


class ServiceProgress(msgspec.Struct, frozen=True):
    """How far a service is."""

    status: Literal["pending", "running", "success", "error"]
    progress: Share


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is."""

    job_id: JobId
    status: Literal["accepted", "processing", "completed"]
    progress: Share
    services: dict[str, ServiceProgress]


def progress_of(job: str, head: JobHead) -> JobProgress:
    # A service's last portion is stored before its end.
    done = [entry.done if entry.ended else min(entry.done, MOST_DONE) for entry in head.entries]
    services = {
        entry.service.value: ServiceProgress(entry.state.value, round(share, 4))
        for entry, share in zip(head.entries, done, strict=True)
    }
    progress = round(sum(done) / len(done), 4)
    return JobProgress(job, head.state.value, progress, services)  # type: ignore[arg-type]
