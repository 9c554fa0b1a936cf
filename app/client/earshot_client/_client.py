"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from ._alarm_calls import AlarmCalls
from ._both import Blocking
from ._job_calls import JobCalls
from ._keys import checked_key
from ._live_calls import LiveCalls
from ._own_sound_calls import OwnSoundCalls
from ._project_calls import ProjectCalls
from ._session_calls import SessionCalls
from ._speaker_calls import SpeakerCalls
from ._version import USER_AGENT

if TYPE_CHECKING:
    import httpx2

    from ._connection import Connection


class Client(
    Blocking, LiveCalls, SessionCalls[Iterable[bytes]], JobCalls, SpeakerCalls, OwnSoundCalls, AlarmCalls, ProjectCalls
):
    """A client that blocks. Threads may share it.

    >>> with Client("http://127.0.0.1:8000", key) as client:
    ...     for event in client.detect("street.wav"):
    ...         print(event.start, event.end, event.sounds)

    The client retries a request that gets no answer or finds the service busy, up to five times within eight seconds,
    or later if the service asks for it with Retry-After. This is harmless, because chunks and jobs carry an
    Idempotency-Key. Methods for which it might not be harmless do not retry, and say so.

    Timeouts: `timeout` is the number of seconds for a whole call, with all tries and pauses. For a method that yields,
    it runs from the request for the first event to the last event, including the caller's own time in between. When it
    passes, the call raises DeadlineExceeded. The service may or may not have carried out the last request; an accepted
    job goes on. An infinite timeout is no limit, and nan a ValueError. Independent of `timeout`, a single request ends
    after 5 s without a connection, or after 30 s (600 s for a recording) in which no byte moved.

    Errors: each method that waits may raise DeadlineExceeded when its `timeout` passes, ServiceUnreachable if the last
    try had no answer, ServiceBusy if it found the service busy, and RequestRefused for any other error of the service.
    All of them are an EarshotClientError. A client that was closed raises ValueError, as a closed socket does.
    """

    _connection: Connection

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        org_key: str = "",
        user_agent: str = USER_AGENT,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a client. Nothing is sent yet.

        Args:
            url: address of the service, such as `http://127.0.0.1:8000`.
            key: the project key, which new sessions and jobs need.
            org_key: the organization key, which speakers need.
            user_agent: the User-Agent header; by default name and version of this package and of Python.
            transport: carries requests; by default connections of httpx2. For proxies, certificates and tests. Live
                sockets have their own.
            sleep: called with the number of seconds between two tries.

        Raises:
            WrongKey: a key has letters that no HTTP header can hold.
        """
        self._key = checked_key(key)
        self._org_key = checked_key(org_key)
        # Imported here: httpx2 takes most of the loading time of this package.
        from ._connection import Connection

        self._connection = Connection(url, user_agent, transport, sleep)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
