"""The methods of both clients for the project itself."""

from . import _project_flows
from ._both import Calls, Result, both
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
        return self._run(_project_flows.project(self._key), timeout)

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
        return self._run(_project_flows.keep_audio(self._key, seconds), timeout)
