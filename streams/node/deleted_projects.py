"""Deletes the sessions and jobs of deleted projects in the partitions that this node owns."""

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import msgspec
import structlog

from streams.folding.head_store import HeadStore
from streams.node.workload import Workload
from topics.errors import EarshotError
from topics.ports.lists import ListQuery
from topics.times import HOUR_MS

log = structlog.get_logger(__name__)

#: Deletions to await at a time.
TOGETHER: Final = 64
#: Seconds after which nothing of a project can appear: what was on its way to the log is folded or lost by then.
SETTLED_SECONDS: Final = HOUR_MS / 1000


class DeletedProjects:
    """The projects that are known to be deleted. Loop only.

    The database remembers them, and rounds repeat, so whatever is killed in between, everything of theirs goes.
    """

    def __init__(self, workloads: Iterable[Workload[Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._workloads = tuple(workloads)
        self._clock = clock
        #: When this node learnt of each project.
        self._since: dict[str, float] = {}

    def __contains__(self, project: str) -> bool:
        return project in self._since

    def learn(self, projects: Iterable[str]) -> list[str]:
        """Treat the ids of these projects' sessions and jobs as unknown from now on; return the projects that are new.

        `remove` deletes what they have.
        """
        new = [project for project in projects if project not in self._since]
        self._since.update(dict.fromkeys(new, self._clock()))
        return new

    async def remove(self) -> None:
        """Send a deletion for each session and job of these projects; the next call repeats what fails."""
        for workload in self._workloads:
            for store in workload.all_serving():
                try:
                    await self._remove_from(workload, store)
                except EarshotError as error:
                    log.warning("project.removed_later", partition=store.partition.number, error=str(error))

    async def _remove_from(self, workload: Workload[Any], store: HeadStore[Any]) -> None:
        for project, since in list(self._since.items()):
            if project in store.empty_projects:
                continue
            query, count = ListQuery(project), await workload.remove_rest(store, project)
            while page := list(islice(store.listed(query), TOGETHER)):
                ids = [entry.id for entry in page if store.takes_commands(entry.id)]
                await asyncio.gather(*map(workload.remove, ids))
                query, count = msgspec.structs.replace(query, after=(page[-1].time_ms, page[-1].id)), count + len(ids)
            if count:
                log.info("project.removed", project=project, partition=store.partition.number, ids=count)
            elif self._clock() > since + SETTLED_SECONDS:
                store.empty_projects.add(project)
            await asyncio.sleep(0)
