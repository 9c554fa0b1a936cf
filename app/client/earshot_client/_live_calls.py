"""The methods of both clients for live events and daily activity."""

from typing import cast

from . import _session_flows
from ._both import Calls, Result, Results, Sockets, both
from ._calls import PATIENCE
from ._live_stream import LiveStream
from ._live_values import Activity, LiveEvent
from ._session_values import MICROPHONE, SessionOptions
from ._socket_state import SocketRequest


class LiveCalls(Calls):
    """Methods for live audio and events."""

    @both
    def socket(
        self,
        session: SessionOptions | str = MICROPHONE,
        *,
        events: tuple[str, ...] = ("window",),
        after: str | None = None,
        listen: bool = False,
        patience: float = PATIENCE,
        timeout: float | None = None,
    ) -> Sockets:
        """Return a live socket: audio in and events out over one connection, restored whenever it breaks.

        It connects when it is entered with `with` or `async with`. Its class describes what happens then.

        Args:
            session: options of a new session of the kind `stream`, by default raw PCM of 16 kHz, 16 bits, one channel;
                or the id of an existing session.
            events: the `kind` of each `SocketEvent` that is wanted; none for audio only.
            after: the session's cursor to begin after; `start` for all events. By default only new events come.
            listen: only receive events of an existing session.
            patience: seconds without a connection after which a socket that was open makes its last try, which may take
                40 s. The first connection is tried six times.
            timeout: seconds that the socket may be open; no limit by default.

        Raises:
            ValueError: `listen` without the id of a session; a time that is not a number.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused: when the socket is entered and used.
        """
        if listen and not isinstance(session, str):
            raise ValueError("listen: give the id of a session")
        if patience != patience:
            raise ValueError("the patience is not a number")
        wanted = SocketRequest(self._key, session, tuple(events), after, listen, patience)
        return cast("Sockets", self._connection.socket(wanted, timeout))

    @both
    def live(self, session_id: str, first: int | None = None, *, timeout: float | None = None) -> Results[LiveEvent]:
        """Yield the events of a session as they come, to its end. A stream that breaks off is resumed.

        Args:
            first: number of the first window; a negative number counts back from the next window, which is the default.
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
        """Yield events of all the project's sessions and jobs, without end. A stream that breaks off is resumed.

        Windows that were missed during a break are in `session_results`: each has its number.

        Args:
            strips: the session whose spectrograms are wanted; none by default.
            timeout: seconds for all events together; no limit by default.

        Yields:
            Events; `session` before the first window of each session, and `job` whenever a job progresses.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._server_events(LiveStream.of_project(self._key, strips), timeout)

    @both
    def session_activity(
        self, session_id: str, day: str | None = None, offset_minutes: int = 0, *, timeout: float | None = None
    ) -> Result[Activity]:
        """Read how long each sound of a session was reported in each hour of a day.

        Args:
            day: `YYYY-MM-DD`; today by default.
            offset_minutes: how far the clock of the hours is ahead of UTC.
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
        """Read how long each sound of the project's sessions was reported in each hour of a day.

        Args:
            day: `YYYY-MM-DD`; today by default.
            offset_minutes: how far the clock of the hours is ahead of UTC.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.activity(None, self._key, day, offset_minutes), timeout)
