"""A live socket without input or output: what was sent and heard, over as many connections as it takes.

The caller makes the `request()`, hands each message to `received`, and reports the end of a connection by `closed`,
`refused` or `broken`. Then it sleeps for `pause()` seconds and connects again, until the socket is `over`.

A chunk is kept until it is acknowledged, and sent again under the same number. Events have cursors: where the caller
reads them more slowly than they come, those past a bound are dropped here, and asked for again once it has caught up.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from . import _session_flows
from ._calls import BUSY, LONGEST_PAUSE, RETRIES, Answer, Call, checked
from ._errors import (
    SOCKET_ERRORS,
    RequestRefused,
    ServiceBusy,
    ServiceUnreachable,
    SessionClosed,
    SessionFailed,
    WrongSequence,
)
from ._json import decoded
from ._session_values import SessionOptions
from ._socket_values import Ack, Fault, Head, Hello, SessionChanged, SocketEvent, event_of

log: Final = logging.getLogger("earshot_client")

PROTOCOL: Final = "earshot.v1"
END: Final = '{"type":"end"}'
READ_ONLY: Final = "the session is readonly and takes no more chunks"
SESSION: Final = "session"
#: Events that wait for the caller.
WAITING_EVENTS: Final = 1024
#: Bytes of audio that wait for their acknowledgement, past which `send` waits: eight minutes of a microphone.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: Seconds without a working connection after which a socket that was open gives up.
PATIENCE: Final = 300.0
#: A connection that lasted so many seconds works, also where it had nothing to say.
STABLE_SECONDS: Final = 10.0

_MOVED: Final = 1001
_TOO_BIG: Final = 1009
_OWN: Final = 4000
_READ_ONLY: Final = 4403
#: Close codes of the range of refusals after which the client connects again.
_IDLE, _TAKEN = 4408, 4410


class SocketWish(msgspec.Struct, frozen=True):
    """What a socket is opened for: a session that exists, by its id, or a new one."""

    key: str
    session: str | SessionOptions
    events: tuple[str, ...]
    after: str | None
    listens: bool
    patience: float = PATIENCE


class SocketState:
    """What one socket has sent, and what it has heard."""

    def __init__(self, wish: SocketWish, clock: Callable[[], float] = time.monotonic) -> None:
        self._wish = wish
        self._clock = clock
        #: Makes a second try join the session that the first one may have made.
        self._request_id = secrets.token_hex(16)
        self.session_id = wish.session if isinstance(wish.session, str) else ""
        self._greeted = False
        #: All is said: the session is readonly, and every event has come.
        self.over = False
        self.frame_bytes = 0
        self._begin()
        # Audio.
        self._kept: deque[bytes] = deque()
        self._size = 0
        #: Every chunk below this number is on disk; it is the number of the first one that is kept.
        self.acknowledged = 0
        self.behind = 0.0
        #: Number of the next chunk to send, and numbers below which a chunk was sent: ever, and before this connection.
        self._next = self._sent = self._sent_before = 0
        self._ending = self._end_sent = False
        #: The session takes no more chunks; why, where a chunk was refused or the audio cannot be analysed.
        self.readonly = False
        self._refusal = ""
        self.error: str | None = None
        # Events.
        self.events: deque[SocketEvent] = deque()
        self._cursor = wish.after
        #: Events came that found no room. They come again from the cursor on.
        self.missed = False
        # Breaks.
        self._tries = 0
        self._down_since: float | None = None
        self._reason = ""

    def _begin(self) -> None:
        self._greeted_at: float | None = None
        self._end_heard = False
        self._fault: Fault | None = None
        self._retry_after = 0.0
        self._at_once = False

    # --- opening --------------------------------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        """True once a connection was greeted."""
        return self._greeted

    def request(self) -> Call:
        """Return the request of the next connection, which goes on behind the last event that came."""
        self._begin()
        wish = self._wish
        # The change of the state tells why a session has ended, so it is asked for whether it is wanted or not.
        query = {"events": ",".join(dict.fromkeys((*wish.events, SESSION)))}
        if wish.listens:
            query["mode"] = "listen"
        if self.session_id:
            path = f"/audio_sessions/{self.session_id}/socket"
        else:
            assert isinstance(wish.session, SessionOptions)
            path = "/api/v1/socket"
            query |= {"after": "start", "request_id": self._request_id}
            query |= {name: _text(value) for name, value in _session_flows.creation(wish.session).items()}
        if self._cursor is not None:
            query["after"] = self._cursor
        return Call("GET", path, headers={"X-Api-Key": wish.key} if wish.key else {}, query=query)

    def received(self, text: bytes) -> None:
        """Take a message.

        Raises:
            ServiceUnreachable: it is none of this protocol.
            WrongSequence: others have sent chunks to the session, or it has lost some.
        """
        head = decoded(text, Head)
        match head.type:
            case "hello":
                self._hello(decoded(text, Hello))
            case "error":
                self._fault = decoded(text, Fault)
            case _ if self._greeted_at is None:
                raise ServiceUnreachable("what answers there does not speak this protocol")
            case "ack":
                self._well()
                self._acknowledge(decoded(text, Ack))
            case "end":
                self._end_heard = self.readonly = True
            case _:
                self._well()
                self._hear(event_of(head, text))

    def _hello(self, hello: Hello) -> None:
        first, self._greeted = not self._greeted, True
        self._greeted_at = self._clock()
        self.session_id = hello.session_id
        self._cursor = self._cursor if self._cursor not in (None, "start") else hello.cursor
        self.frame_bytes = hello.limits.frame_bytes
        self.readonly = hello.state == "readonly"
        # Where the caller has not caught up, what comes is dropped as before.
        self.missed = self.missed and bool(self.events)
        if self._refusal and not self.readonly:
            raise SessionClosed(403, self._refusal)
        if first:
            self.acknowledged = self._sent = hello.next_chunk
        elif not self._wish.listens and not self.acknowledged <= hello.next_chunk <= self._sent:
            raise WrongSequence(
                409,
                f"the session has {hello.next_chunk} chunks; {self.acknowledged} of them were acknowledged, "
                f"and {self._sent} sent: another program sends to it, or it has lost some",
            )
        self._drop_below(hello.next_chunk)
        self._next, self._sent_before, self._end_sent = self.acknowledged, self._sent, False
        if self._down_since is not None:
            log.info("connected again to session %s", self.session_id)

    # --- audio ----------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True where so much audio waits for its acknowledgement that no more should be kept."""
        return self._size >= KEPT_BYTES

    @property
    def is_stored(self) -> bool:
        """True where nothing of what was sent, the end of the audio included, waits for its acknowledgement."""
        return not self._kept and (self.readonly or not self._ending)

    def keep(self, data: bytes) -> None:
        """Take a chunk that is to be sent.

        Raises:
            ValueError: the socket only listens.
            SessionClosed, SessionFailed: the session takes no more chunks.
            RequestRefused: it is too long.
        """
        self._check_that_it_sends()
        if self._ending or self.readonly:
            raise self._closed()
        if len(data) > self.frame_bytes:
            raise RequestRefused(413, f"a chunk has at most {self.frame_bytes} bytes, and this one {len(data)}")
        self._kept.append(data)
        self._size += len(data)

    def end(self) -> None:
        """Take it that no more chunks come; allowed twice.

        Raises:
            ValueError: the socket only listens.
        """
        self._check_that_it_sends()
        self._ending = True

    def _check_that_it_sends(self) -> None:
        if self._wish.listens:
            raise ValueError("a socket that listens sends nothing")

    def next_to_send(self) -> bytes | str | None:
        """Return what is to be sent now, None where nothing is; it counts as sent."""
        if self.readonly or self._refusal:
            return None
        if (index := self._next - self.acknowledged) < len(self._kept):
            self._next += 1
            self._sent = max(self._sent, self._next)
            return self._kept[index]
        if self._ending and not self._end_sent:
            self._end_sent = True
            return END
        return None

    def _acknowledge(self, ack: Ack) -> None:
        self.behind = ack.behind
        self._drop_below(ack.next_chunk)

    def _drop_below(self, number: int) -> None:
        while self._kept and self.acknowledged < number:
            self._size -= len(self._kept.popleft())
            self.acknowledged += 1

    def _closed(self) -> SessionFailed | SessionClosed:
        if self.error is not None:
            return SessionFailed(self.error)
        return SessionClosed(403, self._refusal or READ_ONLY)

    # --- events ---------------------------------------------------------------------------------------------------

    def _hear(self, event: SocketEvent) -> None:
        if isinstance(event, SessionChanged):
            self.readonly, self.error = event.state == "readonly", event.error
        cursor = getattr(event, "cursor", None)
        if self.missed or len(self.events) >= WAITING_EVENTS:
            self.missed = self.missed or cursor is not None
            return
        self._cursor = cursor or self._cursor
        if event.kind in self._wish.events:
            self.events.append(event)

    @property
    def caught_up(self) -> bool:
        """True where events were missed, and the caller has read all that came before them."""
        return self.missed and not self.events

    @property
    def waits_for_reader(self) -> bool:
        """True where nothing is left to do until the caller has read the events that wait."""
        return self._end_heard and self.missed

    # --- the end of a connection, and the next one ------------------------------------------------------------------

    def left(self) -> None:
        """Take the end of a connection that the caller broke off to hear again what it missed."""
        self._at_once = True

    def closed(self, code: int, reason: str) -> None:
        """Take the end of a connection.

        Raises:
            SessionFailed: the audio of the session cannot be analysed; all events have come.
            SessionClosed: the session was made readonly before all chunks were stored; all events have come.
            RequestRefused: the code is one after which a client does not connect again.
        """
        if self._end_heard:
            self.over = not self.missed
            if self.over and (self.error is not None or self._kept):
                raise self._closed()
            return
        text = self._fault.error if self._fault else reason or f"the connection ended with {code}"
        if code == _READ_ONLY and self._greeted_at is not None:
            # What was heard before is still to come, and tells why the session has ended.
            self._refusal, self._at_once = text, True
        elif code == _TOO_BIG:
            raise RequestRefused(413, text)
        elif code == _TAKEN and self.acknowledged >= self._sent_before:
            # The refused chunk is the first without an acknowledgement. It was not sent before, so what is stored
            # under its number is not ours.
            raise WrongSequence(409, text)
        elif _OWN + 400 <= code < _OWN + 500 and code not in (_IDLE, _TAKEN):
            raise SOCKET_ERRORS.get(code - _OWN, RequestRefused)(code - _OWN, text)
        self._at_once = self._at_once or code == _MOVED
        self._retry_after = self._fault.retry_after if self._fault else 0.0
        self.broken(text)

    def refused(self, answer: Answer) -> None:
        """Take an answer that is no socket. After that of a busy service the request can be made again.

        Raises:
            RequestRefused: the answer is an error.
            ServiceUnreachable: it is none, so another program answers.
        """
        if answer.status not in BUSY:
            checked(answer, SOCKET_ERRORS)
            raise ServiceUnreachable(f"what answers there opens no socket, but answers {answer.status}")
        self._retry_after = answer.retry_after
        self.broken(f"the service answered {answer.status}")

    def broken(self, reason: str) -> None:
        """Take a connection that broke, or did not come about."""
        if self._greeted_at is not None and self._clock() - self._greeted_at > STABLE_SECONDS:
            self._well()
        self._reason = reason
        if self._down_since is None:
            self._down_since = self._clock()
            if self._greeted:
                log.warning("the connection to session %s broke (%s); connecting again", self.session_id, reason)

    def _well(self) -> None:
        self._tries, self._down_since = 0, None

    def pause(self) -> float:
        """Return the seconds to wait before the next connection.

        Raises:
            ServiceUnreachable, ServiceBusy: there was none for too long.
        """
        down = 0.0 if self._down_since is None else self._clock() - self._down_since
        if down > self._wish.patience or (not self._greeted and self._tries == len(RETRIES)):
            if self._fault is not None and self._fault.status_code == 503:
                raise ServiceBusy(503, self._fault.error)
            raise ServiceUnreachable(self._reason)
        delay = RETRIES[min(self._tries, len(RETRIES) - 1)]
        if self._at_once and not self._tries:
            delay = 0.0
        self._tries += 1
        # Not all clients at the same moment.
        return random.uniform(0.75, 1.25) * min(max(delay, self._retry_after), LONGEST_PAUSE)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
