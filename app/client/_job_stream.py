"""The event stream of a job, without input or output: bytes in, events out, and what to do when it breaks off.

These are server-sent events (WHATWG HTML, 9.2): lines `event: `, `data: ` and `id: `, and an empty line that ends the
event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ._calls import BUSY, LONGEST_PAUSE, RETRIES, Answer, Call, checked
from ._errors import JOB_ERRORS, JobDeleted, ServiceUnreachable
from ._job_values import JobEvent

#: Bytes of one event. The result of a job of a whole day is a fifth of it.
LONGEST_EVENT: Final = 256 * 1024 * 1024


class JobStream:
    """The events of one job, over as many connections as it takes.

    An `error` event ends its connection. Where the job goes on on another node, the next connection has its events;
    where the job was deleted, the next one is answered 404.

    The caller makes the `request()`, hands all bytes that come to `feed`, and reports a connection that ended by
    `disconnected` or another answer by `refused`. Then it sleeps for `pause()` seconds and makes the request again,
    until the stream has `ended()`.
    """

    def __init__(self, job_id: str, last_event_id: str | None = None, key: str = "", prefix: str = "/api/v1") -> None:
        self._ended = False
        #: A stream has been answered with.
        self.connected = False
        self._prefix = prefix
        self._job = job_id
        self._key = key
        self._id = last_event_id
        self._tries = 0
        self._retry_after = 0.0
        self._reason = "the stream ended"
        self._error = ""
        self._begin()

    def _begin(self) -> None:
        self._rest = bytearray()
        self._next = self._id
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def ended(self) -> bool:
        """Return True after the last event of the job."""
        return self._ended

    def request(self) -> Call:
        """Return the request of the next connection, which begins after the last event that came."""
        self._begin()
        self._retry_after = 0.0
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._id:
            headers["Last-Event-ID"] = self._id
        if self._key:  # Some deployments ask for it.
            headers["X-Api-Key"] = self._key
        return Call("GET", f"{self._prefix}/jobs/{self._job}/stream", headers=headers)

    def feed(self, data: bytes) -> Iterator[JobEvent]:
        """Take bytes as they come, and yield the events that end in them.

        Raises:
            ServiceUnreachable: an event is longer than LONGEST_EVENT.
        """
        self.connected = True
        self._size += len(data)
        if self._size > LONGEST_EVENT:
            raise ServiceUnreachable(f"an event of the job is longer than {LONGEST_EVENT} bytes")
        self._rest += data
        if b"\n" not in data:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            event = self._line(bytes(line.removesuffix(b"\r")))
            if event is None:
                continue
            if event.kind == "error":
                self._error = event.message
                return
            self._tries = 0
            self._error = ""
            self._ended = event.kind == "completed"
            yield event
            if self._ended:
                return

    def _line(self, line: bytes) -> JobEvent | None:
        if line:
            self._field(*line.split(b":", 1))
            return None
        kind, data = self._kind, self._data
        # Not before the event is whole: half an event must come again.
        self._id = self._next
        self._kind, self._data, self._size = "", [], len(self._rest)
        return JobEvent(kind or "message", b"\n".join(data), self._id) if data else None

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
        """Take an answer that is no stream. After that of a busy service the request can be made again.

        Raises:
            JobDeleted: the job was deleted while its events were read.
            RequestRefused: the answer is an error.
        """
        if answer.status == 404 and self._error:
            raise JobDeleted(self._error)
        if answer.status not in BUSY:
            checked(answer, JOB_ERRORS)
        self.disconnected(f"the service answered {answer.status}")
        self._retry_after = answer.retry_after

    def disconnected(self, reason: str) -> None:
        """Take the end of a connection that is not the end of the events."""
        self._reason = reason

    def pause(self) -> float:
        """Return the seconds to wait before the next connection.

        Raises:
            ServiceUnreachable: no event came over the last six connections.
        """
        if self._tries == len(RETRIES):
            raise ServiceUnreachable(self._error or self._reason)
        self._tries += 1
        return min(max(RETRIES[self._tries - 1], self._retry_after), LONGEST_PAUSE)
