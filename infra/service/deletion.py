"""Deletes what deleted projects and organizations have outside of the database: sessions, jobs and voice files."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from infra.db.accounts import Accounts
from infra.db.database import Database
from infra.service.administration import SqlAdministration
from streams.node.deleted_projects import DeletedProjects
from topics.errors import ServiceError

log = structlog.get_logger("infra.service")

#: A deletion by another process takes effect here within this time.
POLL_SECONDS: Final = 5.0


class ProjectDeletions:
    """Tells a node which projects are deleted."""

    def __init__(self, database: Database, projects: DeletedProjects) -> None:
        self._accounts = Accounts(database)
        self._projects = projects
        #: Projects whose keys may still be cached here.
        self._new: list[str] = []
        self._found = asyncio.Event()

    async def check(self) -> None:
        """Learn which projects are deleted: from now on, the ids of their sessions and jobs are unknown here.

        Raises:
            DirectoryDown: the database does not answer.
        """
        if new := self._projects.learn(await self._accounts.deleted_projects()):
            self._new += new
            self._found.set()

    def look(self) -> None:
        """Have `run` look at once."""
        self._found.set()

    async def run(self, end_keys: Callable[[str], None]) -> None:
        """Look again and again; end the keys of each deleted project, and delete its sessions and jobs."""
        while True:
            self._found.clear()
            while self._new:
                end_keys(self._new.pop())
            await self._projects.remove()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._found.wait()
            try:
                await self.check()
            except ServiceError as error:
                log.warning("projects.unread", error=str(error))


class Operator(SqlAdministration):
    """An operator beside a running service, whose deletions take effect here at once."""

    def __init__(self, database: Database, look: Callable[[], Awaitable[None]], sweep: Callable[[], Awaitable[None]]):
        """`look` learns of deleted projects, `sweep` starts deleting the voice files of deleted organizations."""
        super().__init__(database)
        self._look = look
        self._sweep = sweep

    async def delete_project(self, project: str) -> None:
        await super().delete_project(project)
        await self._learn()

    async def delete_organization(self, organization: str) -> None:
        await super().delete_organization(organization)
        await self._learn()
        await self._sweep()

    async def _learn(self) -> None:
        with suppress(ServiceError):  # What is deleted is noted, and the next look finds it.
            await self._look()
