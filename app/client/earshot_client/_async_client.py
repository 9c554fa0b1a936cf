"""The client for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ._async_job_calls import AsyncJobCalls
from ._async_live_calls import AsyncLiveCalls
from ._async_project_calls import AsyncProjectCalls
from ._async_session_calls import AsyncSessionCalls
from ._async_speaker_calls import AsyncSpeakerCalls
from ._keys import checked_key
from ._version import USER_AGENT

if TYPE_CHECKING:
    import httpx2


class AsyncClient(AsyncLiveCalls, AsyncSessionCalls, AsyncJobCalls, AsyncSpeakerCalls, AsyncProjectCalls):
    """A client for the tasks of one event loop. Its methods are those of `Client`, with the same errors.

    >>> async with AsyncClient("http://127.0.0.1:8000", key) as client:
    ...     async for event in client.detect("street.wav"):
    ...         print(event.start, event.end, event.sounds)

    Files are read in threads, never on the event loop. That holds for open files too, so nothing else may use them
    until the call has ended.

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

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        org_key: str = "",
        user_agent: str = USER_AGENT,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """Make a client. Nothing is sent yet.

        Args:
            url: where the service is, such as `http://127.0.0.1:8000`.
            key: the project key, which new sessions and jobs need.
            org_key: the organization key, which speakers need.
            user_agent: the User-Agent header; by default name and version of this package and of Python.
            transport: what carries requests, by default connections of httpx2; for proxies, certificates and tests.
            sleep: what waits for a number of seconds between two tries; by default that of asyncio.

        Raises:
            WrongKey: a key has letters that no HTTP header can hold.
        """
        self._key = checked_key(key)
        self._org_key = checked_key(org_key)
        # Not at the top: httpx2 takes most of the time that loading this package would take.
        from ._async_connection import AsyncConnection

        self._connection = AsyncConnection(url, user_agent, transport, sleep)

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
