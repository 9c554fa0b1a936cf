"""The event stream of a job."""

from ._calls import PATIENCE, Answer, checked, segment
from ._errors import JOB_ERRORS, JobDeleted
from ._event_stream import EventStream
from ._job_values import JobEvent


class JobStream(EventStream[JobEvent]):
    """The events of one job.

    If the job continues on another node, the next connection gets its events; if the job was deleted, it gets a 404.
    """

    last = frozenset({"completed"})
    patience = PATIENCE

    def __init__(self, job_id: str, last_event_id: str | None = None, key: str = "") -> None:
        super().__init__(f"/api/v1/jobs/{segment(job_id)}/stream", key, last_event_id)

    def event(self, kind: str, data: bytes, id: str | None) -> JobEvent:
        return JobEvent(kind, data, id)

    def check(self, answer: Answer) -> None:
        """Raise the error for an answer that is not a stream.

        Raises:
            JobDeleted: the job was deleted while its events were read.
            RequestRefused: the answer is an error.
        """
        if answer.status == 404 and self._error:
            raise JobDeleted(self._error)
        checked(answer, JOB_ERRORS)
