"""The client for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Self

from ._alarm_calls import AlarmCalls
from ._both import OnLoop
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

    from ._async_connection import AsyncConnection


class AsyncClient(
    OnLoop,
    LiveCalls,
    SessionCalls[AsyncIterable[bytes] | Iterable[bytes]],
    JobCalls,
    SpeakerCalls,
    OwnSoundCalls,
    AlarmCalls,
    ProjectCalls,
):
    """A client for the tasks of one event loop, with the methods of `Client`.

    >>> async with AsyncClient("http://127.0.0.1:8000", key) as client:
    ...     async for event in client.detect("street.wav"):
    ...         print(event.start, event.end, event.sounds)

    Threads read the files, never the event loop. This includes open files, so nothing else may use them during the
    call.

    `Client` explains retries, timeouts and errors.
    """

    _connection: AsyncConnection

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
        """Make a client. Nothing is sent yet. The arguments are those of `Client`, except:

        Args:
            transport: carries requests; by default connections of httpx2. For proxies, certificates and tests. Live
                sockets have their own.
            sleep: awaited with the number of seconds between two tries; by default `asyncio.sleep`.

        Raises:
            WrongKey: a key has letters that no HTTP header can hold.
        """
        self._key = checked_key(key)
        self._org_key = checked_key(org_key)
        # Imported here: httpx2 takes most of the loading time of this package.
        from ._async_connection import AsyncConnection

        self._connection = AsyncConnection(url, user_agent, transport, sleep)

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
