"""A live socket without input or output: what was sent and heard, over as many connections as it takes.

The caller makes the `request()`, hands each message to `received`, and reports how the connection ended by `closed`,
`refused` or `broken`. Then it sleeps for `pause()` seconds and connects again, until the socket is `over`.

A chunk is kept until it is acknowledged, and sent again under the same number. Events past a bound are dropped, and
asked for again by the cursor once the caller has read those before them.
"""

import logging
import random
import secrets
import time
from collections import deque
from typing import Final

import msgspec

from ._calls import BUSY, LONGEST_PAUSE, RETRIES, Answer, Call, checked
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
from ._session_flows import creation
from ._session_values import SessionOptions
from ._socket_values import Ack, End, Fault, Hello, LevelHeard, SessionChanged, SocketEvent, message_of

log: Final = logging.getLogger("earshot_client")

PROTOCOL: Final = "earshot.v1"
END: Final = '{"type":"end"}'
#: Events that wait for the caller.
WAITING_EVENTS: Final = 1024
#: Bytes of audio without an acknowledgement, past which `send` waits: eight minutes of a microphone.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: Seconds without a connection after which a socket that was open gives up.
PATIENCE: Final = 300.0
#: A connection that lasted so many seconds works, even if it had nothing to say.
STABLE_SECONDS: Final = 10.0

# Close codes.
MOVED, TOO_BIG, TRY_LATER, OWN, READ_ONLY, IDLE, TAKEN = 1001, 1009, 1013, 4000, 4403, 4408, 4410


class SocketWish(msgspec.Struct, frozen=True):
    """What a socket is opened for: a session that exists, by its id, or a new one."""

    key: str
    session: str | SessionOptions
    events: tuple[str, ...] = ("window",)
    after: str | None = None
    listens: bool = False
    patience: float = PATIENCE


class SocketState:
    """What one socket has sent, and what it has heard."""

    def __init__(self, wish: SocketWish) -> None:
        self._wish = wish
        #: With it a second try joins the session that the first one may have made.
        self._request_id = secrets.token_hex(16)
        self.session_id = wish.session if isinstance(wish.session, str) else ""
        #: A connection was greeted.
        self.opened = False
        #: The session is readonly, and every event has come.
        self.over = False
        self._readonly = False
        self._error: str | None = None
        self._frame_bytes = 0
        self._kept: deque[bytes] = deque()
        self._size = 0
        #: Every chunk below this number is on disk: it is the number of the first one that is kept.
        self.acknowledged = 0
        self.behind = 0.0
        #: The next chunk to send, and the first one that was never sent: now, and when this connection began.
        self._next = self._unsent = self._unsent_before = 0
        self._ending = self._end_sent = False
        self.events: deque[SocketEvent] = deque()
        self._cursor = wish.after
        self._tries = 0
        self._down_since: float | None = None
        self._begin()

    def _begin(self) -> None:
        self._greeted_at: float | None = None
        self._fault = Fault(0, "")
        self._end_heard = False
        #: Events came that found no room.
        self._missed = False
        self._at_once = False
        self._least_pause = 0.0

    # --- opening --------------------------------------------------------------------------------------------------

    def request(self) -> Call:
        """Return the request of the next connection, which goes on behind the last event that came."""
        self._begin()
        wish = self._wish
        # Why a session has ended is told by its change, so that is always asked for.
        query = {"events": ",".join(dict.fromkeys((*wish.events, "session")))}
        if wish.listens:
            query["mode"] = "listen"
        path = f"/audio_sessions/{self.session_id}/socket"
        if not self.session_id:
            assert isinstance(wish.session, SessionOptions)
            path = "/api/v1/socket"
            query |= {"after": "start", "request_id": self._request_id}
            query |= {name: _text(value) for name, value in creation(wish.session).items()}
        if self._cursor is not None:
            query["after"] = self._cursor
        return Call("GET", path, headers={"X-Api-Key": wish.key} if wish.key else {}, query=query)

    def received(self, text: bytes) -> None:
        """Take a message.

        Raises:
            ServiceUnreachable: it is none of this protocol.
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
                raise ServiceUnreachable("what answers there does not speak this protocol")
            case Ack():
                self._works()
                self.behind = message.behind
                self._drop_below(message.next_chunk)
            case End():
                self._end_heard = self._readonly = True
            case _:
                self._works()
                self._hear(message)

    def _hello(self, hello: Hello) -> None:
        if not self.opened:
            self.acknowledged = self._unsent = hello.next_chunk
        elif not self._wish.listens and not self.acknowledged <= hello.next_chunk <= self._unsent:
            raise WrongSequence(
                409,
                f"the session has {hello.next_chunk} chunks; {self.acknowledged} of them were acknowledged, "
                f"and {self._unsent} sent: another program sends to it, or it has lost some",
            )
        self.opened = True
        self._greeted_at = time.monotonic()
        self.session_id = hello.session_id
        if self._cursor in (None, "start"):
            self._cursor = hello.cursor
        self._frame_bytes = hello.limits.frame_bytes
        self._readonly = hello.state == "readonly"
        self._drop_below(hello.next_chunk)
        self._next, self._unsent_before, self._end_sent = self.acknowledged, self._unsent, False
        if self._down_since is not None:
            log.warning("connected again; every chunk below %d is stored", hello.next_chunk)

    # --- audio ----------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if so much audio waits for its acknowledgement that no more should be kept."""
        return self._size >= KEPT_BYTES

    @property
    def is_stored(self) -> bool:
        """True if nothing of what was sent, the end included, waits for its acknowledgement."""
        return not self._kept and (self._readonly or not self._ending)

    def keep(self, data: bytes) -> None:
        """Take a chunk that is to be sent.

        Raises:
            ValueError: the socket only listens.
            SessionClosed, SessionFailed: the session takes no more chunks.
            RequestRefused: it is too long.
        """
        self._check_that_it_sends()
        if self._ending or self._readonly:
            raise self._closed()
        if len(data) > self._frame_bytes:
            raise RequestRefused(413, f"a chunk has at most {self._frame_bytes} bytes, and this one {len(data)}")
        self._kept.append(data)
        self._size += len(data)

    def end(self) -> None:
        """Note that no more chunks come; allowed twice.

        Raises:
            ValueError: the socket only listens.
        """
        self._check_that_it_sends()
        self._ending = True

    def _check_that_it_sends(self) -> None:
        if self._wish.listens:
            raise ValueError("a socket that listens sends nothing")

    def next_to_send(self) -> bytes | str | None:
        """Return what is to be sent now, None if nothing is; it counts as sent."""
        if self._greeted_at is None or self._readonly:
            return None  # Before the greeting nobody knows the number of the next one.
        if (index := self._next - self.acknowledged) < len(self._kept):
            self._next += 1
            self._unsent = max(self._unsent, self._next)
            return self._kept[index]
        if self._ending and not self._end_sent:
            self._end_sent = True
            return END
        return None

    def _drop_below(self, number: int) -> None:
        while self._kept and self.acknowledged < number:
            self._size -= len(self._kept.popleft())
            self.acknowledged += 1

    def _closed(self) -> SessionFailed | SessionClosed:
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
        if event.kind in self._wish.events:
            self.events.append(event)

    @property
    def behind_reader(self) -> bool:
        """True if events were missed, and the caller has read all that came before them."""
        return self._missed and not self.events

    @property
    def waits_for_reader(self) -> bool:
        """True if nothing is left to do until the caller has read the events that wait."""
        return self._end_heard and self._missed

    # --- the end of a connection, and the next one ------------------------------------------------------------------

    def closed(self, code: int, reason: str) -> None:
        """Take the end of a connection.

        Raises:
            SessionFailed: the audio of the session cannot be analysed; all events have come.
            SessionClosed: the session was made readonly before all chunks were stored; all events have come.
            RequestRefused: the code is one after which a client does not connect again.
        """
        if self._end_heard:
            self.over = not self._missed
            if self.over and (self._error is not None or self._kept):
                raise self._closed()
            return
        text = self._fault.error or reason or f"the connection ended with {code}"
        # A chunk was refused because the session has ended. The next connection brings the last events, which tell why.
        ended = code == READ_ONLY and self._greeted_at is not None
        if code == TOO_BIG:
            raise RequestRefused(413, text)
        if code == TAKEN and self.acknowledged >= self._unsent_before:
            # The refused chunk was never sent before, so what is stored under its number is not ours.
            raise WrongSequence(409, text)
        if OWN + 400 <= code < OWN + 500 and code not in (IDLE, TAKEN) and not ended:
            raise SOCKET_ERRORS.get(code - OWN, RequestRefused)(code - OWN, text)
        self._at_once = ended or code == MOVED
        self._least_pause = self._fault.retry_after
        self.broken(ServiceBusy(503, text) if code == TRY_LATER else ServiceUnreachable(text))

    def refused(self, answer: Answer) -> None:
        """Take an answer that is no socket. After that of a busy service the request can be made again.

        Raises:
            RequestRefused: the answer is an error.
            ServiceUnreachable: it is none, so another program answers.
        """
        text = f"the service answered {answer.status} to a request for a socket"
        if answer.status not in BUSY:
            checked(answer, SOCKET_ERRORS)
            raise ServiceUnreachable(text)
        self._least_pause = answer.retry_after
        self.broken(ServiceBusy(answer.status, text))

    def broken(self, error: EarshotClientError) -> None:
        """Take a connection that broke, or did not come about."""
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
            ServiceUnreachable, ServiceBusy: there was none for too long.
        """
        down = 0.0 if self._down_since is None else time.monotonic() - self._down_since
        if down > self._wish.patience or (not self.opened and self._tries == len(RETRIES)):
            raise self._last
        delay = RETRIES[min(self._tries, len(RETRIES) - 1)]
        if self._at_once and not self._tries:
            delay = 0.0
        self._tries += 1
        # Not all clients at the same moment.
        return random.uniform(0.75, 1.25) * min(max(delay, self._least_pause), LONGEST_PAUSE)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
