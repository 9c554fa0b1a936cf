"""The methods of both clients for the project itself."""

import msgspec

from ._both import Calls, Result, both
from ._calls import Call
from ._errors import JOB_ERRORS
from ._json import fetch
from ._project_values import Project


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
    def keep_audio(self, seconds: int | None, *, timeout: float | None = None) -> Result[Project]:
        """Set how long the audio of an accepted job is kept, for listening and viewing.

        It applies to jobs sent from now on; on other nodes of the service within minutes.

        Args:
            seconds: at most `Project.longest_keep_audio_seconds`; 0 until the job is done, None for the service's
                default.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The updated project.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        body = msgspec.json.encode({"keep_audio_seconds": seconds})
        call = Call("PATCH", "/api/v1/project", body, {"X-Api-Key": self._key, "Content-Type": "application/json"})
        return self._run(fetch(call, Project, JOB_ERRORS), timeout)
