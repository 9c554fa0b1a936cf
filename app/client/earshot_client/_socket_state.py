"""The state of a live socket without I/O: what was sent and received, over as many connections as necessary.

The caller makes the `request()`, passes each message to `received`, and reports the end of a connection with `closed`,
`refused` or `broken`. Then it sleeps for `pause()` seconds and reconnects, until the socket is `over`.

A chunk is kept until it is acknowledged, and sent again under the same number. Events beyond a bound are dropped, and
requested again by the cursor once the caller has read the earlier ones.
"""

import logging
import secrets
import time
from collections import deque
from typing import Final

import msgspec

from ._calls import BUSY, PATIENCE, RETRIES, STABLE_SECONDS, Answer, Call, checked, pause, segment
from ._errors import (
    SOCKET_ERRORS,
    EarshotClientError,
    RequestRefused,
    ServiceBusy,
    ServiceUnreachable,
    SessionClosed,
    SessionFailed,
    WrongSequence,
)
from ._json import FOREIGN
from ._media import Frames
from ._session_flows import creation
from ._session_values import SessionOptions
from ._socket_values import Ack, End, Fault, Hello, LevelHeard, SessionChanged, SocketEvent, Warned, message_of
from ._times import Time, time_text

log: Final = logging.getLogger("earshot_client")

PROTOCOL: Final = "earshot.v1"
END: Final = '{"type":"end"}'
#: The most events that wait for the caller.
WAITING_EVENTS: Final = 1024
#: Bytes of unacknowledged audio beyond which `send` waits: eight minutes of a microphone.
KEPT_BYTES: Final = 16 * 1024 * 1024

# Close codes.
MOVED, TOO_BIG, TRY_LATER, OWN, READ_ONLY, IDLE, TAKEN = 1001, 1009, 1013, 4000, 4403, 4408, 4410


class SocketRequest(msgspec.Struct, frozen=True):
    """What a socket is opened for: an existing session, by its id, or a new one."""

    key: str
    session: str | SessionOptions
    events: tuple[str, ...] = ("window",)
    after: str | None = None
    listens: bool = False
    patience: float = PATIENCE


class SocketState:
    """Decides what one socket sends next, and turns messages into events."""

    def __init__(self, wanted: SocketRequest) -> None:
        self._wanted = wanted
        #: With this id a retry joins the session that the first try may have made.
        self._request_id = secrets.token_hex(16)
        self.session_id = wanted.session if isinstance(wanted.session, str) else ""
        #: The service has greeted a connection.
        self.opened = False
        #: The session is readonly, and every event has come.
        self.over = False
        self._readonly = False
        self._error: str | None = None
        #: The longest chunk.
        self.frame_bytes = 0
        #: Cuts the audio; known once the service has greeted a connection.
        self.frames = Frames("")
        #: What is not acknowledged: chunks, each with the message before it or "", and messages `source`.
        self._kept: deque[tuple[str, bytes] | str] = deque()
        #: What this connection still has to send.
        self._unsent: deque[bytes | str] = deque()
        self._size = 0
        #: Messages `source` that the session has, and whether the service takes any.
        self._notes, self._takes_notes = 0, False
        #: Why the service left something out, the last time.
        self.warning: str | None = None
        #: Every chunk below this number is on disk; it is the number of the first chunk that is kept.
        self.acknowledged = 0
        self.behind = 0.0
        #: One more than the number of the last chunk that is kept.
        self._behind_last = 0
        #: The next chunk to send.
        self._next = 0
        #: The first chunk that was never sent.
        self._first_unsent = 0
        #: The same when this connection began.
        self._first_unsent_before = 0
        self._ending = self._end_sent = False
        self.events: deque[SocketEvent] = deque()
        self._cursor = wanted.after
        self._tries = 0
        self._down_since: float | None = None
        self._begin()

    def _begin(self) -> None:
        self._greeted_at: float | None = None
        self._fault = Fault(0, "")
        self._end_heard = False
        #: Events were dropped because there was no room.
        self._missed = False
        self._at_once = False
        self._least_pause = 0.0

    # --- opening --------------------------------------------------------------------------------------------------

    def request(self) -> Call:
        """Return the request of the next connection, which resumes after the last event."""
        self._begin()
        wanted = self._wanted
        # Changes of the session report why it ended, so they are always requested.
        query = {"events": ",".join(dict.fromkeys((*wanted.events, "session")))}
        if wanted.listens:
            query["mode"] = "listen"
        path = f"/audio_sessions/{segment(self.session_id)}/socket"
        if isinstance(wanted.session, SessionOptions) and not self.session_id:
            path = "/api/v1/socket"
            query |= {"after": "start", "request_id": self._request_id}
            query |= {name: _text(value) for name, value in creation(wanted.session).items()}
        if self._cursor is not None:
            query["after"] = self._cursor
        return Call("GET", path, headers={"X-Api-Key": wanted.key} if wanted.key else {}, query=query)

    def received(self, text: bytes) -> None:
        """Handle a message.

        Raises:
            ServiceUnreachable: it does not belong to this protocol.
            WrongSequence: others have sent chunks to the session, or it has lost some.
        """
        message = message_of(text)
        match message:
            case None:
                pass
            case Hello():
                self._hello(message)
            case Fault():
                self._fault = message
            case _ if self._greeted_at is None:
                raise ServiceUnreachable(FOREIGN)
            case Ack():
                self._works()
                self.behind = message.behind
                self._drop_below(message.next_chunk, message.notes)
            case Warned():
                self.warning = message.warning
                log.warning("%s", message.warning)
            case End():
                self._end_heard = self._readonly = True
            case _:
                self._works()
                self._hear(message)

    def _hello(self, hello: Hello) -> None:
        if not self.opened:
            self._notes, self._takes_notes = hello.notes or 0, hello.notes is not None
            self.acknowledged = self._first_unsent = self._behind_last = hello.next_chunk
            self.frames = Frames(hello.content_type, hello.partial_bytes)
        elif not self._wanted.listens and not self.acknowledged <= hello.next_chunk <= self._first_unsent:
            raise WrongSequence(
                409,
                f"the session has {hello.next_chunk} chunks; {self.acknowledged} of them were acknowledged, "
                f"and {self._first_unsent} sent: another program sends to it, or it has lost some",
            )
        self.opened = True
        self._greeted_at = time.monotonic()
        self.session_id = hello.session_id
        if self._cursor in (None, "start"):
            self._cursor = hello.cursor
        self.frame_bytes = hello.limits.frame_bytes
        self._readonly = hello.state == "readonly"
        self._drop_below(hello.next_chunk, hello.notes or 0)
        self._unsent.clear()
        for one in self._kept:
            self._unsent.extend(filter(None, one) if isinstance(one, tuple) else (one,))
        self._next, self._first_unsent_before, self._end_sent = self.acknowledged, self._first_unsent, False
        if self._down_since is not None:
            log.warning("connected again; every chunk below %d is stored", hello.next_chunk)

    # --- audio ----------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if so much audio is unacknowledged that no more should be kept."""
        return self._size >= KEPT_BYTES

    @property
    def is_stored(self) -> bool:
        """True if everything sent, including the end, is acknowledged; a session that ended takes no notes."""
        return not self._has_chunks and (self._readonly or not (self._kept or self._ending))

    @property
    def _has_chunks(self) -> bool:
        return self.acknowledged < self._behind_last

    def keep(self, data: bytes, captured: Time | None = None, spooled: bool = False) -> None:
        """Queue a chunk for sending, which was captured at a time.

        Raises:
            ValueError: the socket only listens.
            SessionClosed, SessionFailed: the session takes no more chunks.
            RequestRefused: it is too long.
        """
        self._check_that_it_sends()
        if self._ending or self._readonly:
            raise self.failure()
        if len(data) > self.frame_bytes:
            raise RequestRefused(413, f"a chunk has at most {self.frame_bytes} bytes, and this one {len(data)}")
        text = ""
        if captured is not None and self._takes_notes:
            text = _text({"type": "captured", "time": time_text(captured), "spooled": spooled})
        self._kept.append((text, data))
        self._unsent.extend(filter(None, (text, data)))
        self._size += len(data)
        self._behind_last += 1

    def note(self, event: str, reason: str | None, at: Time, spooled: bool) -> None:
        """Queue a note of the source for sending; a service that takes none gets none.

        Raises:
            ValueError: the socket only listens.
            SessionClosed, SessionFailed: the session takes no more of them.
        """
        self._check_that_it_sends()
        if self._ending or self._readonly:
            raise self.failure()
        if self._takes_notes:
            told = {"event": event, "time": time_text(at), "reason": reason, "spooled": spooled}
            text = _text({"type": "source", **told})
            self._kept.append(text)
            self._unsent.append(text)
            self._size += len(text)

    def end(self) -> None:
        """Note that no more chunks come; allowed twice.

        Raises:
            ValueError: the socket only listens.
        """
        self._check_that_it_sends()
        self._ending = True

    def _check_that_it_sends(self) -> None:
        if self._wanted.listens:
            raise ValueError("a socket that listens sends nothing")

    def next_to_send(self) -> bytes | str | None:
        """Return the next message to send, which counts as sent, or None."""
        if self._greeted_at is None or self._readonly:
            return None  # The greeting tells the number of the next chunk.
        if self._unsent:
            message = self._unsent.popleft()
            if isinstance(message, bytes):
                self._next += 1
                self._first_unsent = max(self._first_unsent, self._next)
            return message
        if self._ending and not self._end_sent:
            self._end_sent = True
            return END
        return None

    def _drop_below(self, number: int, notes: int) -> None:
        """Drop the chunks below a number, and what was sent before them; and so many notes of the session."""
        while self._kept:
            first = self._kept[0]
            if isinstance(first, tuple) and self.acknowledged < number:
                self._size -= len(first[1])
                self.acknowledged += 1
            elif isinstance(first, str) and (self.acknowledged < number or self._notes < notes):
                self._size -= len(first)
                self._notes += 1
            else:
                break
            self._kept.popleft()

    def failure(self) -> SessionFailed | SessionClosed:
        """Return why the session takes no more chunks."""
        if self._error is not None:
            return SessionFailed(self._error)
        return SessionClosed(403, "the session is readonly and takes no more chunks")

    # --- events ---------------------------------------------------------------------------------------------------

    def _hear(self, event: SocketEvent) -> None:
        if isinstance(event, SessionChanged):
            self._readonly, self._error = event.state == "readonly", event.error
        if self._missed or len(self.events) >= WAITING_EVENTS:
            self._missed = self._missed or not isinstance(event, LevelHeard)
            return
        if not isinstance(event, LevelHeard):
            self._cursor = event.cursor
        if event.kind in self._wanted.events:
            self.events.append(event)

    @property
    def behind_reader(self) -> bool:
        """True if events were missed, and the caller has read all earlier ones."""
        return self._missed and not self.events

    @property
    def waits_for_reader(self) -> bool:
        """True if nothing is left to do until the caller has read the waiting events."""
        return self._end_heard and self._missed

    # --- the end of a connection, and the next one ------------------------------------------------------------------

    def closed(self, code: int, reason: str) -> None:
        """Handle the end of a connection.

        Raises:
            SessionFailed: the audio of the session cannot be analysed; all events have come.
            SessionClosed: the session was made readonly before all chunks were stored; all events have come.
            RequestRefused: after this code a client does not reconnect.
        """
        if self._end_heard:
            self.over = not self._missed
            if self.over and (self._error is not None or self._has_chunks):
                raise self.failure()
            return
        text = self._fault.error or reason or f"the connection ended with {code}"
        # A chunk was refused because the session has ended. The next connection brings the last events, which say why.
        ended = code == READ_ONLY and self._greeted_at is not None
        if code == TOO_BIG:
            raise RequestRefused(413, text)
        if code == TAKEN and self.acknowledged >= self._first_unsent_before:
            # The refused chunk was never sent before, so the chunk stored under its number is not ours.
            raise WrongSequence(409, text)
        if OWN + 400 <= code < OWN + 500 and code not in (IDLE, TAKEN) and not ended:
            raise SOCKET_ERRORS.get(code - OWN, RequestRefused)(code - OWN, text)
        self._at_once = ended or code == MOVED
        self._least_pause = self._fault.retry_after
        self.broken(ServiceBusy(503, text) if code == TRY_LATER else ServiceUnreachable(text))

    def refused(self, answer: Answer) -> None:
        """Handle an answer that is not a socket; if the service is busy, the request can be retried.

        Raises:
            RequestRefused: the answer is an error.
            ServiceUnreachable: it is not an error, so another program answers.
        """
        text = f"the service answered {answer.status} to a request for a socket"
        if answer.status not in BUSY:
            checked(answer, SOCKET_ERRORS)
            raise ServiceUnreachable(text)
        self._least_pause = answer.retry_after
        self.broken(ServiceBusy(answer.status, text))

    def broken(self, error: EarshotClientError) -> None:
        """Handle a connection that broke or failed to open."""
        if self._greeted_at is not None and time.monotonic() - self._greeted_at > STABLE_SECONDS:
            self._works()
        self._last = error
        if self._down_since is None:
            self._down_since = time.monotonic()
            if self.opened:
                log.warning("the connection broke (%s); connecting again", error)

    def _works(self) -> None:
        self._tries, self._down_since = 0, None

    def pause(self) -> float:
        """Return the seconds to wait before the next connection.

        Raises:
            ServiceUnreachable, ServiceBusy: there was no connection for too long.
        """
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        left = self._wanted.patience - down
        if left < 0 or (not self.opened and self._tries == len(RETRIES)):
            raise self._last
        delay = RETRIES[min(self._tries, len(RETRIES) - 1)]
        if self._at_once and not self._tries:
            delay = 0.0
        self._tries += 1
        return min(pause(delay, self._least_pause), left)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
