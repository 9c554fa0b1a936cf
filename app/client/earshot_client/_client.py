"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from ._both import Blocking
from ._job_calls import JobCalls
from ._keys import checked_key
from ._live_calls import LiveCalls
from ._project_calls import ProjectCalls
from ._session_calls import SessionCalls
from ._speaker_calls import SpeakerCalls
from ._version import USER_AGENT

if TYPE_CHECKING:
    import httpx2

    from ._connection import Connection


class Client(Blocking, LiveCalls, SessionCalls[Iterable[bytes]], JobCalls, SpeakerCalls, ProjectCalls):
    """A client that blocks. Threads may share it.

    >>> with Client("http://127.0.0.1:8000", key) as client:
    ...     for event in client.detect("street.wav"):
    ...         print(event.start, event.end, event.sounds)

    A request without an answer, or that finds the service busy, is repeated up to five times within eight seconds,
    or later where the service asks for it by Retry-After. That is harmless: chunks and jobs carry an Idempotency-Key.
    Where it might not be, the method says that it does not.

    Time: `timeout` is the number of seconds that a whole call may take, with all its tries and pauses; for a method
    that yields, from the first event that is asked for to the last, with the time that the caller takes in between.
    When it passes, the call ends with DeadlineExceeded. It is then not known whether the service carried out the last
    request; a job that was accepted goes on. Whatever the `timeout`, a single request ends after 5 s without a
    connection, or after 30 s (600 s for a recording) in which no byte moved.

    Errors: each method that waits may raise DeadlineExceeded when its `timeout` passes, ServiceUnreachable when the
    last try had no answer, ServiceBusy when it found the service busy, and RequestRefused for any other error of the
    service. All of them are an EarshotClientError.
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
            url: where the service is, such as `http://127.0.0.1:8000`.
            key: the project key, which new sessions and jobs need.
            org_key: the organization key, which speakers need.
            user_agent: the User-Agent header; by default name and version of this package and of Python.
            transport: what carries requests, by default connections of httpx2; for proxies, certificates and tests.
                Live sockets have their own.
            sleep: what waits for a number of seconds between two tries.

        Raises:
            WrongKey: a key has letters that no HTTP header can hold.
        """
        self._key = checked_key(key)
        self._org_key = checked_key(org_key)
        # Not at the top: httpx2 takes most of the time that loading this package would take.
        from ._connection import Connection

        self._connection = Connection(url, user_agent, transport, sleep)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
