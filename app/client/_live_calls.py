"""The methods of both clients about what is heard now, and on a day."""

from __future__ import annotations

from . import _session_flows
from ._both import Calls, Result, Results, both
from ._live_stream import LiveStream
from ._live_values import Activity, LiveEvent


class LiveCalls(Calls):
    """What a client hears of sessions that others feed."""

    @both
    def live(self, session_id: str, first: int | None = None, *, timeout: float | None = None) -> Results[LiveEvent]:
        """Yield what a session hears as it comes, to its end. A stream that breaks off is taken up again.

        Args:
            first: number of the first window; below zero, so many before the next one, which is the default.
            timeout: seconds for all events together; no limit by default.

        Yields:
            Events, each `window` once and in order; the last one is `ended` or `deleted`.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._server_events(LiveStream.of_session(self._key, session_id, first), timeout)

    @both
    def project_live(self, strips: str | None = None, *, timeout: float | None = None) -> Results[LiveEvent]:
        """Yield what all sessions of the project hear, to no end. A stream that breaks off is taken up again.

        Windows that came in between are in `session_results`: each has its number.

        Args:
            strips: the session of which spectrograms are wanted; by default of none.
            timeout: seconds for all events together; no limit by default.

        Yields:
            Events; `session` before the first window of each.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._server_events(LiveStream.of_project(self._key, strips), timeout)

    @both
    def session_activity(
        self, session_id: str, day: str | None = None, offset_minutes: int = 0, *, timeout: float | None = None
    ) -> Result[Activity]:
        """Read for how long each sound of a session was reported in each hour of a day.

        Args:
            day: `YYYY-MM-DD`; today by default.
            offset_minutes: by which the clock of the hours is ahead of UTC.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.activity(session_id, self._key, day, offset_minutes), timeout)

    @both
    def project_activity(
        self, day: str | None = None, offset_minutes: int = 0, *, timeout: float | None = None
    ) -> Result[Activity]:
        """Read for how long each sound of the project's sessions was reported in each hour of a day.

        Args:
            day: `YYYY-MM-DD`; today by default.
            offset_minutes: by which the clock of the hours is ahead of UTC.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.activity(None, self._key, day, offset_minutes), timeout)
