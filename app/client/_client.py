"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx2

from app.client import _flows, _media
from app.client._flows import Answer, Call, Flow, Lost, Pause
from app.client._models import NORMAL, Event, Opening, Page, Sensitivity, Session, Status

T = TypeVar("T")

#: A status read may wait on the service's side, for about nine seconds.
TIMEOUT: Final = httpx2.Timeout(30.0, connect=5.0)


class Client:
    """A client that blocks; threads may share it.

    >>> with Client("http://127.0.0.1:8000", key) as client:
    ...     for event in client.detect(Path("street.wav")):
    ...         print(event.start, event.end, event.sounds)

    Chunk uploads and reads are repeated after a lost answer or a 503 (as its Retry-After asks), which is harmless:
    uploads carry an Idempotency-Key. Every method may raise `Unreachable` or `Refused`.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key = key
        self._http = httpx2.Client(base_url=url, timeout=TIMEOUT, transport=transport)
        self._sleep = sleep

    def create_session(self, opening: Opening) -> Session:
        """Open a session; the only call that needs the key."""
        return self._run(_flows.create(self._key, opening))

    def put_chunk(self, session: str, sequence: int, data: bytes) -> int:
        """Upload a chunk (at most 1 MiB) and return the number of the next one."""
        return self._run(_flows.put_chunk(session, sequence, data))

    def seal(self, session: str) -> None:
        """Make a session readonly."""
        self._run(_flows.seal(session))

    def delete(self, session: str) -> None:
        """Delete a session and all that the service knows of it."""
        self._run(_flows.delete(session))

    def status(self, session: str, token: str | None = None) -> Status:
        """Read one page; the service waits for a while when there is nothing yet."""
        return self._run(_flows.read(session, token))

    def events(self, session: str) -> Iterator[Event]:
        """Yield every event once, in order, as they come, until the session has ended.

        Raises:
            SessionFailed: after what was analysed before the session's error.
        """
        return self._iterate(_flows.follow(session))

    def detect(self, path: Path, sensitivity: Sensitivity = NORMAL) -> Iterator[Event]:
        """Send a file as a file session and yield its events.

        Raises:
            UnknownFormat, SessionFailed, OSError.
        """
        return self._iterate(detection(path, self._key, sensitivity))

    def official_tags(self) -> tuple[str, ...]:
        """Return the tags that the service's model knows."""
        return self._run(_flows.official_tags())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration as stop:
                result: T = stop.value
                return result
            came = self._perform(step)

    def _iterate(self, flow: Flow[None]) -> Iterator[Event]:
        came: Answer | Lost | None = None
        while True:
            try:
                step = flow.send(came)
            except StopIteration:
                return
            if isinstance(step, Page):
                yield from step.events
            came = self._perform(step)

    def _perform(self, step: _flows.Step) -> Answer | Lost | None:
        if isinstance(step, Pause):
            self._sleep(step.seconds)
        if not isinstance(step, Call):
            return None
        try:
            response = self._http.request(
                step.method, step.path, content=step.body, headers=step.headers, params=step.query
            )
        except httpx2.TransportError as error:
            return lost(error)
        return answer(response)


def detection(path: Path, key: str, sensitivity: Sensitivity) -> Flow[None]:
    """Return the flow that sends a file; the file is opened when the flow starts."""
    yield from _flows.detect(key, _media.opening(path, sensitivity), _media.chunks(path))


def lost(error: httpx2.TransportError) -> Lost:
    """Return a failed request as a value."""
    return Lost(str(error) or type(error).__name__)


def answer(response: httpx2.Response) -> Answer:
    """Return what a flow needs of a response."""
    try:
        wait = float(response.headers.get("Retry-After", 0))
    except ValueError:
        # The other form of the header is a date; our own pauses do then.
        wait = 0.0
    return Answer(response.status_code, response.content, wait)
