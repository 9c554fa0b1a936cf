"""Streams of server-sent events without I/O: takes bytes, yields events, and plans reconnections.

These are server-sent events (WHATWG HTML, 9.2): lines `event: `, `data: ` and `id: `, and an empty line that ends the
event.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from ._calls import BUSY, RETRIES, STABLE_SECONDS, Answer, Call, log, pause
from ._errors import ServiceUnreachable
from ._job_values import JobEvent

E = TypeVar("E")

#: The longest event in bytes. The result of a whole day's job is a fifth of it.
LONGEST_EVENT: Final = 256 * 1024 * 1024


class EventStream(ABC, Generic[E]):
    """The events of one path, over as many connections as necessary.

    The caller makes the `request()`, passes all received bytes to `feed`, and reports the end of a connection with
    `disconnected`, or another answer with `refused`. Then it sleeps for `pause()` seconds and makes the request again,
    until the stream has `ended()`. An event `error` ends its connection too.
    """

    #: The kinds of the last event.
    last: frozenset[str] = frozenset()
    #: Seconds without a sign of life after which a stream that was open gives up, unless it has more tries.
    patience = 0.0

    def __init__(
        self, path: str, key: str = "", last_event_id: str | None = None, query: Mapping[str, str] = {}
    ) -> None:
        self._ended = False
        #: The service has answered with a stream.
        self.connected = False
        self._path = path
        self._key = key
        self._query = query
        self._id = last_event_id
        self._tries = 0
        self._down_since = 0.0
        self._retry_after = 0.0
        self._reason = "the stream ended"
        self._error = ""
        self._begin()

    def _begin(self) -> None:
        #: When the first bytes of this connection came.
        self._began: float | None = None
        self._rest = bytearray()
        self._next = self._id
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def ended(self) -> bool:
        """Return True after the last event."""
        return self._ended

    def request(self) -> Call:
        """Return the request of the next connection, which begins after the last event received."""
        self._begin()
        self._retry_after = 0.0
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._id:
            headers["Last-Event-ID"] = self._id
        if self._key:  # Some deployments require it.
            headers["X-Api-Key"] = self._key
        return Call("GET", self._path, headers=headers, query=self._query)

    def feed(self, data: bytes) -> Iterator[E]:
        """Take received bytes, and yield the events that they complete.

        Raises:
            ServiceUnreachable: an event is longer than LONGEST_EVENT.
        """
        self.connected = True
        if self._began is None:
            self._began = time.monotonic()
            self._reason = "the stream ended"
        self._size += len(data)
        if self._size > LONGEST_EVENT:
            raise ServiceUnreachable(f"an event is longer than {LONGEST_EVENT} bytes")
        self._rest += data
        if b"\n" not in data:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            said = self._line(bytes(line.removesuffix(b"\r")))
            if said is None:
                continue
            kind, data = said
            if kind == "error":
                self._error = self._reason = JobEvent(kind, data).message
                return
            self._tries = 0
            self._error = ""
            self._ended = kind in self.last
            yield self.event(kind, data, self._id)
            if self._ended:
                return

    @abstractmethod
    def event(self, kind: str, data: bytes, id: str | None) -> E:
        """Build an event."""

    @abstractmethod
    def check(self, answer: Answer) -> None:
        """Raise the error for an answer that is not a stream."""

    def _line(self, line: bytes) -> tuple[str, bytes] | None:
        if line:
            self._field(*line.split(b":", 1))
            return None
        kind, data = self._kind, self._data
        # Only now is the event whole; an incomplete event must come again.
        self._id = self._next
        self._kind, self._data, self._size = "", [], len(self._rest)
        return (kind or "message", b"\n".join(data)) if data else None

    def _field(self, name: bytes, value: bytes = b"") -> None:
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"data":
                self._data.append(value)
            case b"id":
                self._next = value.decode(errors="replace")

    def refused(self, answer: Answer) -> None:
        """Handle an answer that is not a stream; if the service is busy, the request can be retried.

        Raises:
            RequestRefused: the answer is an error.
        """
        if answer.status not in BUSY:
            self.check(answer)
        self.disconnected(f"the service answered {answer.status}")
        self._retry_after = answer.retry_after

    def disconnected(self, reason: str) -> None:
        """Note that a connection ended before the last event."""
        self._reason = reason

    def pause(self) -> float:
        """Return the seconds to wait before the next connection.

        Raises:
            ServiceUnreachable: no event came over the last six connections, none of them lasted, and a stream that was
                open has had its `patience`.
        """
        now = time.monotonic()
        if self._began is not None and now - self._began >= STABLE_SECONDS:
            self._tries = 0
        if self._tries == 0:
            self._down_since = now
        if self._tries >= len(RETRIES):
            left = self.patience - (now - self._down_since) if self.connected else 0.0
            if left <= 0:
                raise ServiceUnreachable(self._reason)
            if self._tries == len(RETRIES):
                log.warning("the service does not answer (%s); trying for %.0f s more", self._reason, left)
        self._tries += 1
        return pause(RETRIES[min(self._tries, len(RETRIES)) - 1], self._retry_after)
