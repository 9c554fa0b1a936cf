"""The methods of both clients for the project itself."""

from datetime import date
from typing import Unpack

import msgspec

from ._both import Calls, Result, both
from ._calls import Call, Flow
from ._errors import JOB_ERRORS
from ._json import fetch
from ._project_values import DailyUsage, Project, ProjectChoices


class _Usage(msgspec.Struct, frozen=True):
    rows: tuple[DailyUsage, ...]


class ProjectCalls(Calls):
    """Methods for the project of the client's key."""

    @both
    def project(self, *, timeout: float | None = None) -> Result[Project]:
        """Read the project: its plan, its jobs' usage this month, and how long their audio is kept.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        call = Call("GET", "/api/v1/project", headers={"X-Api-Key": self._key})
        return self._run(fetch(call, Project, JOB_ERRORS), timeout)

    @both
    def change_project(self, *, timeout: float | None = None, **choices: Unpack[ProjectChoices]) -> Result[Project]:
        """Change choices of the project; those that are not given stay.

        They apply to jobs and sessions created from now on; on other nodes of the service within minutes.

        Args:
            timeout: seconds for the whole call; no limit by default.
            choices: fields of `ProjectChoices`, as `keep_embeddings=True`.

        Returns:
            The updated project.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        headers = {"X-Api-Key": self._key, "Content-Type": "application/json"}
        call = Call("PATCH", "/api/v1/project", msgspec.json.encode(choices), headers)
        return self._run(fetch(call, Project, JOB_ERRORS), timeout)

    @both
    def project_usage(
        self, since: date | None = None, until: date | None = None, *, timeout: float | None = None
    ) -> Result[tuple[DailyUsage, ...]]:
        """Read the project's usage by day (UTC) and service, for at most 366 days.

        Args:
            since: the first day; by default 30 days before the last one.
            until: the last day; by default today.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        query = {name: f"{day:%Y-%m-%d}" for name, day in (("since", since), ("until", until)) if day is not None}
        call = Call("GET", "/api/v1/project/usage", headers={"X-Api-Key": self._key}, query=query)
        return self._run(self._rows(call), timeout)

    def _rows(self, call: Call) -> Flow[tuple[DailyUsage, ...]]:
        return (yield from fetch(call, _Usage, JOB_ERRORS)).rows
