"""Progress of a project's jobs, for one listener."""

import time
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from cachetools import LRUCache

from app.cluster.lists import LONGEST_PAGE
from app.http.server_sent import named_event
from app.job_progress import progress_of
from app.sessions.answers import LiveJob, LiveJobRemoved
from topics.errors import Unavailable
from topics.jobs.rules import JobState
from topics.ports.jobs import Jobs
from topics.ports.lists import ListQuery

#: Jobs whose reported revisions are remembered for a listener.
KEPT: Final = 4096


class JobReader:
    """Reads the project's jobs on this node: the unfinished ones, and those accepted from now on."""

    def __init__(self, jobs: Jobs, project: str) -> None:
        self._jobs = jobs
        self._project = project
        self._begun_ms = 1000 * time.time()
        #: The last reported revision of each.
        self._told: LRUCache[str, int] = LRUCache(KEPT)

    def unfinished(self) -> Collection[str]:
        """Return the newest unfinished jobs."""
        query = ListQuery(self._project, (JobState.ACCEPTED, JobState.PROCESSING), count=LONGEST_PAGE)
        return [job for _, job, _ in self._jobs.listed(query)]

    def events(self, jobs: Collection[str]) -> Iterator[bytes]:
        """Yield the news of some jobs; ignore jobs of other projects."""
        for job in jobs:
            try:
                view = self._jobs.view(job)
            except Unavailable:  # Its next node reports the rest.
                continue
            told = self._told.get(job)
            if view is None:
                if told is not None:
                    del self._told[job]
                    yield named_event(LiveJobRemoved(job))
                continue
            head = view.head
            is_met = told is not None or head.unfinished or head.created >= self._begun_ms
            if view.accepted.project == self._project and is_met and head.revision > (told or 0):
                self._told[job] = head.revision
                progress = msgspec.structs.asdict(progress_of(job, head))
                yield named_event(LiveJob(**progress, cursor=str(head.revision)))
