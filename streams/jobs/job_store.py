"""Reads the rows of one partition's jobs with their types."""

from collections.abc import Collection

from streams.folding.head_store import HeadStore
from topics import keys
from topics.jobs import rows
from topics.jobs.options import Service
from topics.jobs.records import Accepted
from topics.jobs.rules import VISIBLE_STATES, JobHead, JobState


class JobStore(HeadStore[JobHead]):
    """The jobs of one partition. Loop only."""

    space = keys.JOB
    index = keys.JOB_DUE
    unsettled = keys.JOB_OPEN
    listing = keys.JOB_LIST
    listed_states = VISIBLE_STATES

    def read_head(self, id: str) -> JobHead | None:
        return rows.head(self.partition.get(self.row_key(id, keys.HEAD)))

    def is_erased(self, head: JobHead) -> bool:
        return head.state is JobState.REMOVED

    def listed_as(self, head: JobHead) -> tuple[JobState, int] | None:
        """Return its state and the time of acceptance; None if clients cannot read it."""
        return (head.state, head.created) if head.visible else None

    def origin(self, request: bytes | None) -> tuple[str, int] | None:
        """Return the project of an acceptance; its time is always 0."""
        accepted = rows.accepted(request)
        return None if accepted is None else (accepted.project, 0)

    def spared_keys(self, id: str, rest: JobHead | None) -> Collection[bytes]:
        """Return the acceptance's key of a removed job that is not fully billed."""
        return [self.row_key(id, keys.REQUEST)] if rest is not None and rest.unbilled else ()

    def project(self, id: str) -> str | None:
        """Return the project of a job; None while it is uploaded."""
        accepted = self.accepted(id)
        return None if accepted is None else accepted.project

    def accepted(self, job: str) -> Accepted | None:
        """Return the acceptance of a job; None while it is uploaded."""
        return rows.accepted(self.partition.get(self.row_key(job, keys.REQUEST)))

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        """Return one portion; those below `Entry.portions` are the result."""
        return self.partition.get(keys.portion_key(job, service, number))
