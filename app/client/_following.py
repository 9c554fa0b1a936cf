"""The event stream of a job, read without input or output: bytes in, events out, and what to do when it breaks off.

The form is that of server-sent events (WHATWG HTML, 9.2): lines `event: `, `data: `, `id: `, and an empty one that
ends the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.client._errors import BY_JOB_STATUS, JobFailed, Unreachable
from app.client._flows import BUSY, LONGEST_PAUSE, RETRIES, Answer, Call, checked
from app.client._results import JobEvent

#: Bytes of one event; the result of a job of a whole day is a fifth of it.
LONGEST_EVENT: Final = 256 * 1024 * 1024


class Following:
    """Follows one job over as many connections as it takes.

    An `error` event says that nothing more will come of this connection. Where the job went on elsewhere the next one
    tells of it; where it was removed there is no next one.

    Whoever drives it makes `request()`, gives what comes to `feed`, and tells of a connection that ended or never was
    by `refused` or `lost`; then it sleeps for `pause()` and makes the request again, until it has `ended()`.
    """

    def __init__(self, job: str, last_event_id: str | None = None) -> None:
        self._ended = False
        self._job = job
        self._id = last_event_id
        self._tries = 0
        self._asked = 0.0
        self._reason = "the stream ended"
        self._error = ""
        self._begin()

    def _begin(self) -> None:
        self._rest = bytearray()
        self._next = self._id
        self._kind = ""
        self._data: list[bytes] = []
        self._held = 0

    def ended(self) -> bool:
        """Return True once the last event came."""
        return self._ended

    def request(self) -> Call:
        """Return the request of the next connection, which goes on after the last event that came."""
        self._begin()
        self._asked = 0.0
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._id:
            headers["Last-Event-ID"] = self._id
        return Call("GET", f"/api/v1/jobs/{self._job}/stream", headers=headers)

    def feed(self, data: bytes) -> Iterator[JobEvent]:
        """Take bytes as they come and yield the events that they complete.

        Raises:
            Unreachable: an event is longer than LONGEST_EVENT.
        """
        self._held += len(data)
        if self._held > LONGEST_EVENT:
            raise Unreachable(f"an event of job {self._job} is longer than {LONGEST_EVENT} bytes")
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
        # Only now: half an event must come again.
        self._id = self._next
        self._kind, self._data, self._held = "", [], len(self._rest)
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
        """Take an answer that is no stream.

        Raises:
            JobFailed: the job was removed while it was followed.
            Refused: unless the service was only busy.
        """
        if answer.status == 404 and self._error:
            raise JobFailed(self._error)
        if answer.status not in BUSY:
            checked(answer, BY_JOB_STATUS)
        self.lost(f"the service answered {answer.status}")
        self._asked = answer.retry_after

    def lost(self, reason: str) -> None:
        """Take the end of a connection that was not the end of the events."""
        self._reason = reason

    def pause(self) -> float:
        """Return the seconds to wait before the next connection.

        Raises:
            Unreachable: no event came over the last connections.
        """
        if self._tries == len(RETRIES):
            raise Unreachable(self._error or self._reason)
        self._tries += 1
        return min(max(RETRIES[self._tries - 1], self._asked), LONGEST_PAUSE)
