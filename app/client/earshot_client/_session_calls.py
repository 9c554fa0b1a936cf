"""The methods of both clients for sessions."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

from . import _session_flows
from ._both import Calls, Result, Results, both
from ._list_values import LONGEST_PAGE, SessionPage, all_pages, list_query
from ._session_values import (
    DEFAULT_SENSITIVITY,
    MICROPHONE,
    Prediction,
    Sensitivity,
    Session,
    SessionEntry,
    SessionOptions,
    SessionResults,
    SessionStatus,
    SoundRule,
)
from ._socket_state import SocketRequest
from ._times import Time
from ._uploads import Audio
from ._window_values import Event

#: An iterator that may block, which `AsyncClient` reads in threads; `AsyncClient` also takes asynchronous ones.
Blocks = TypeVar("Blocks", bound=Iterable[bytes] | AsyncIterable[bytes])


class SessionCalls(Calls, Generic[Blocks]):
    """Methods for sessions."""

    @both
    def create_session(self, options: SessionOptions, *, timeout: float | None = None) -> Result[Session]:
        """Open a session, with the project key. It is retried only if the service did nothing: else it might open two.

        Args:
            options: its kind, content type and sensitivity, which cannot be changed.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            Its id, the number of its first chunk, and length and hop of its windows in seconds.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.create(self._key, options), timeout)

    @both
    def put_chunk(
        self,
        session_id: str,
        sequence: int,
        data: bytes,
        *,
        captured: Time | None = None,
        spooled: bool = False,
        timeout: float | None = None,
    ) -> Result[int]:
        """Upload the next chunk of a session.

        Args:
            sequence: its number; `Session.chunk_sequence` for the first chunk.
            data: at most 1 MiB of the session's content type; for a stream about half a second is best.
            captured: when its first sample was captured; raw PCM only.
            spooled: `captured` may be up to 7 days ago instead of an hour.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The number of the next chunk.

        Raises:
            SessionClosed: the session takes no more chunks.
            SessionNotFound: the session never existed, was deleted or has expired.
            WrongSequence: another number is the next one.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.put_chunk(self._key, session_id, sequence, data, captured, spooled), timeout)

    @both
    def seal_session(self, session_id: str, *, timeout: float | None = None) -> Result[None]:
        """Make a session readonly: it takes no more chunks, and the analysis of a file starts.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.seal(self._key, session_id), timeout)

    @both
    def change_sound_rules(
        self,
        session_id: str,
        rule: SoundRule | None = None,
        rules: Mapping[str, SoundRule] | None = None,
        *,
        timeout: float | None = None,
    ) -> Result[None]:
        """Change when a sound is on in a session, for windows that are not analysed yet; 64 times at most.

        Args:
            rule: for all sounds; None keeps the rule.
            rules: for single sounds, by name. They replace the earlier ones; None keeps these.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.change(self._key, session_id, sound_rule=rule, sound_rules=rules), timeout)

    @both
    def rename_session(
        self,
        session_id: str,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Result[None]:
        """Give a session, which may have ended, another name or other metadata; lists and later alarms have them.

        Args:
            name: the new `file_name`; None keeps it.
            metadata: replaces all of the earlier metadata; None keeps it.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.change(self._key, session_id, file_name=name, metadata=metadata), timeout)

    @both
    def delete_session(self, session_id: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a session with its audio and events. A missing session is not an error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.delete(self._key, session_id), timeout)

    @both
    def session_status(
        self, session_id: str, token: str | None = None, *, timeout: float | None = None
    ) -> Result[SessionStatus]:
        """Read the state of a session and one page of its events. With a token the service waits up to 9 s for one.

        Args:
            token: the token from the previous page; by default the first page is read.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            State, error and page; the page has the token of the next one.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.status(self._key, session_id, token), timeout)

    @both
    def session_events(self, session_id: str, *, timeout: float | None = None) -> Results[Event]:
        """Yield every event of a session once, in order, as they come, until the session ends.

        Args:
            timeout: seconds for all events together; no limit by default.

        Yields:
            An event for each window, with start and end in seconds.

        Raises:
            SessionFailed: the audio cannot be analysed; earlier events have been yielded.
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._items(_session_flows.events(self._key, session_id), timeout)

    @both
    def detect(
        self,
        audio: Audio,
        sensitivity: Sensitivity = DEFAULT_SENSITIVITY,
        *,
        on_session: Callable[[Session], object] | None = None,
        timeout: float | None = None,
    ) -> Results[Event]:
        """Send a file as a session, with the project key, and yield its events.

        Args:
            audio: a path, a recording's bytes, or a file open for reading bytes, which is read from its beginning and
                stays open. A file is sent in chunks of 1 MiB and never held in memory as a whole.
            sensitivity: how readily tags are reported.
            on_session: called when the session is open; its id lets a program delete a session that it gives up.
            timeout: seconds for the upload and all events together; no limit by default.

        Yields:
            An event for each window, with start and end in seconds.

        Raises:
            UnknownFormat: the service does not decode this format.
            SessionFailed: the audio cannot be analysed; earlier events have been yielded.
            WrongKey: the service does not know the project key.
            OSError: the file cannot be read.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._items(_session_flows.detect(self._key, audio, sensitivity, on_session), timeout)

    @both
    def stream(
        self, blocks: Blocks, options: SessionOptions = MICROPHONE, *, timeout: float | None = None
    ) -> Results[Event]:
        """Send live audio as a session over a `socket`, with the project key, and yield its windows meanwhile.

        Args:
            blocks: pieces of the audio as they come, as for `Socket.stream`. The session is closed after the last one,
                or when the caller stops reading.
            options: a session of the kind `stream`; by default raw PCM of 16 kHz, 16 bits, one channel.
            timeout: seconds for all events together; no limit by default.

        Yields:
            An event for each window, with start and end in seconds.

        Raises:
            SessionFailed: the audio cannot be analysed; earlier events have been yielded.
            SessionClosed: the session was made readonly before all blocks were stored.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        connection: Any = self._connection  # whose block type is its client's
        return cast("Results[Event]", connection.stream(SocketRequest(self._key, options), blocks, timeout))

    @both
    def session_results(
        self, session_id: str, offset: int = 0, limit: int = 1024, *, timeout: float | None = None
    ) -> Result[SessionResults]:
        """Read events of a session by number. For a closed session the service waits up to 9 s until all are there.

        Args:
            offset: number of the first event.
            limit: the most events to return, 1 to 1024.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionNotFound: the session never existed, was deleted or has expired.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.results(self._key, session_id, offset, limit), timeout)

    @both
    def predict(
        self, session_id: str, window: bytes, sequence: int | None = None, *, timeout: float | None = None
    ) -> Result[Prediction]:
        """Send a single window of a stream session, and return its event. It is retried only if nothing was done.

        Args:
            window: audio of `Session.window_size` seconds, of the session's content type.
            sequence: its number, counted from 0; by default the next one.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            SessionClosed: the session takes no more windows.
            SessionNotFound: the session never existed, was deleted or has expired.
            WrongSequence: another number is the next one.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.predict(self._key, session_id, window, sequence), timeout)

    @both
    def list_sessions(
        self,
        token: str | None = None,
        *,
        state: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> Result[SessionPage]:
        """Read a page of the project's sessions, newest first.

        Args:
            token: the token from the previous page, which includes its filters; by default the first page is read.
            state: `writable` or `readonly`, or both separated by a comma; all by default.
            since: opened at or after this time, a `datetime` or text in ISO 8601.
            until: opened before this time.
            count: the most sessions to return, 1 to 200; 50 by default.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        query = list_query(token, state, since, until, count)
        return self._run(_session_flows.listing(self._key, query), timeout)

    @both
    def sessions(
        self,
        *,
        state: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        timeout: float | None = None,
    ) -> Results[SessionEntry]:
        """Yield all of the project's sessions, newest first, page by page.

        Args:
            state: `writable` or `readonly`; all by default.
            since: opened at or after this time, a `datetime` or text in ISO 8601.
            until: opened before this time.
            timeout: seconds for all of them together; no limit by default.

        Raises:
            IncompleteList: a node did not answer; the other nodes' sessions were yielded before.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._items(
            all_pages(
                lambda token: _session_flows.listing(self._key, list_query(token, state, since, until, LONGEST_PAGE))
            ),
            timeout,
        )

    @both
    def official_tags(self, *, timeout: float | None = None) -> Result[tuple[str, ...]]:
        """Return the names of all tags that the service's model knows.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_session_flows.official_tags(), timeout)

    @both
    def is_ready(self, *, timeout: float | None = None) -> Result[bool]:
        """Return whether the service is ready; False while it starts or while its partitions move.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            DeadlineExceeded, ServiceUnreachable, RequestRefused.
        """
        return self._run(_session_flows.is_ready(), timeout)
