"""The methods of both clients for the project itself."""

from collections.abc import Mapping
from datetime import date

import msgspec

from ._both import Calls, Result, both
from ._calls import Call, Flow
from ._errors import JOB_ERRORS
from ._json import fetch
from ._project_values import DailyUsage, Project
from ._session_values import SoundRule


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
        return self._change(timeout, keep_audio_seconds=seconds)

    @both
    def keep_embeddings(self, keep: bool, *, timeout: float | None = None) -> Result[Project]:
        """Set whether windows keep what own sounds are learnt from: 192 numbers each, and no audio.

        It applies to sessions and jobs created from now on; on other nodes of the service within minutes.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The updated project.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._change(timeout, keep_embeddings=keep)

    @both
    def set_sound_rules(
        self, rule: SoundRule | None, rules: Mapping[str, SoundRule] = {}, *, timeout: float | None = None
    ) -> Result[Project]:
        """Set when a sound is on in sessions without rules of their own, which are opened from now on.

        Args:
            rule: for all sounds; None for the service's rule.
            rules: for single sounds, by name. They replace the project's earlier ones.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The updated project.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._change(timeout, sound_rule=rule, sound_rules=rules)

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

    def _change(self, timeout: float | None, **fields: object) -> Result[Project]:
        headers = {"X-Api-Key": self._key, "Content-Type": "application/json"}
        call = Call("PATCH", "/api/v1/project", msgspec.json.encode(fields), headers)
        return self._run(fetch(call, Project, JOB_ERRORS), timeout)

    def _rows(self, call: Call) -> Flow[tuple[DailyUsage, ...]]:
        return (yield from fetch(call, _Usage, JOB_ERRORS)).rows
