"""One socket of a session: chunks in, acknowledgements and events out.

Chunks go to the log as they arrive. Replies are read from the verdicts and the rows, and sent in one write per turn of
the loop in which something changed. Only what has no verdict waits in memory; at its bound, the socket stops reading.
"""

import asyncio
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Final

import structlog

from app.http.bodies import BodyQuota
from app.http.call import KeyEnd
from app.http.sockets import GOING_AWAY, OK, REPLACED, Wire, close_code, reason_bytes
from app.sessions import socket_audio
from app.sessions import socket_messages as messages
from app.sessions.cursors import FIRST, Place
from app.sessions.session_context import SessionContext
from app.sessions.socket_audio import SentAudio
from app.sessions.socket_events import EventReader
from app.sessions.socket_quota import KeyWatch, SocketQuota
from app.sessions.waiting import NO_SESSION
from app.windows import encode
from topics import keys
from topics.clock import until_tick
from topics.errors import BadRequest, EarshotError, NotOwned, Unavailable
from topics.ports.live import SoundTap
from topics.ports.sessions import SessionView
from topics.sessions.rules import SessionHead, SessionState, why_readonly
from topics.turns import Holder

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: How long a socket waits for verdicts before it closes because its node is stopping.
LEAVE_SECONDS: Final = 2.0
MOVED: Final = "the session goes on at another node; connect again"


class Phase(Enum):
    OPENING = "opening"
    OPEN = "open"
    #: The client has sent `end`, or the node is stopping: no further audio is accepted.
    ENDING = "ending"
    CLOSED = "closed"


class Socket:
    """Implements `app.http.sockets.Receiver` for one session. Loop only."""

    wire: Wire
    _events: EventReader

    def __init__(
        self, context: SessionContext, sockets: SocketQuota, room: BodyQuota, holder: Holder, sends: bool
    ) -> None:
        """Join the session that is the holder's subject; set `wire` before calling `open`."""
        self._context = context
        self._sockets = sockets
        self._room = room
        self.holder = holder
        self._session = holder.subject
        self._sends = sends
        self._phase = Phase.OPENING
        self._loop = asyncio.get_running_loop()
        self._tap: SoundTap | None = None
        #: Called once the socket is closed.
        self._on_end: list[Callable[[], object]] = []
        self._audio = SentAudio(context, holder, sockets.line, self)
        self._frame_bytes = context.chunk_limit
        self._sealing = self._seals_late = False
        #: The session takes no more audio, but the client has sent some.
        self._refuses = False
        self._moved = False
        self._held = 0
        self._scheduled = False
        #: Fires at the tick at which stored chunks are acknowledged at the latest.
        self._ack_timer: asyncio.TimerHandle | None = None
        #: Resolved once no chunk of this socket or of those it replaced can still be stored.
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._entered = asyncio.Event()
        #: The client was sent `hello`.
        self.greeted = False

    # --- opening and closing ----------------------------------------------------------------------------------------

    async def open(self, place: Place | None, wanted: Set[str], idle_seconds: float) -> None:
        """Begin, once the previous sender can store nothing more; errors close the socket."""
        try:
            await self._enter()
            self._begin(place, wanted, idle_seconds)
        except EarshotError as error:
            self.refuse_error(error)
        except Exception as error:
            self._break(error)

    async def _enter(self) -> None:
        try:
            if self._sends and (before := self._sockets.enter(self._session, self)) is not None:
                await before.drained()
        finally:
            self._entered.set()
            self._note_drained()

    def _begin(self, place: Place | None, wanted: Set[str], idle_seconds: float) -> None:
        if self._phase is Phase.CLOSED:
            return
        self._on_end.append(self._context.sessions.subscribe(self._session, self._woken).close)
        view = self._context.sessions.view(self._session)
        if view is None:
            self.fail(404, NO_SESSION)
            return
        self._sockets.places.take(self.holder)
        self._on_end.append(partial(self._sockets.places.give_back, self.holder))
        self._events = EventReader(self._context.renderer, self._session, view.opened, place or FIRST, wanted)
        if place is None:
            self._events.skip_to_end(view)
        if self._events.tells_levels:
            self._context.listeners.take(self.holder)
            self._on_end.append(partial(self._context.listeners.give_back, self.holder))
            self._tap = self._context.sessions.listen(self._session)
            self._on_end.append(self._tap.close)
        self._audio.begin(view.head, view.opened)
        limits = messages.Limits(self._frame_bytes, socket_audio.UNACKNOWLEDGED_BYTES, idle_seconds)
        self._phase = Phase.OPEN
        self.wire.send([messages.hello(self._session, view, self._events.cursor, limits)])
        self.greeted = True
        self.wire.resume_reading()
        self._wake()

    def replace(self) -> None:
        """Close, because another socket now sends for the session."""
        self._close(REPLACED, "another socket sends for this session now", 409)

    def watch_key(self, keys_of_sockets: KeyWatch, key: str, ended: KeyEnd) -> None:
        """Close once the key that opened this socket has ended."""

        def call(why: EarshotError) -> None:
            self.fail(*messages.key_failure(why))

        keys_of_sockets.add(key, ended, call)
        self._on_end.append(partial(keys_of_sockets.remove, key, call))

    async def drained(self) -> None:
        """Return once nothing of this socket can be stored any more."""
        await asyncio.shield(self._drained)

    def leave(self) -> None:
        """The node is stopping, or the session is moving: wait a while for pending verdicts."""
        if self._phase is not Phase.CLOSED and not self._moved:
            self._moved, self._phase = True, Phase.ENDING
            self._loop.call_later(LEAVE_SECONDS, self._leave_now)
            self._wake()

    def _leave_now(self) -> None:
        self._close(GOING_AWAY, MOVED, None)

    def fail(self, status: int, text: str, fields: dict[str, int] | None = None) -> None:
        """Close with the close code of a status; `fields` are added to the error."""
        self._close(close_code(status), text, status, fields)

    def refuse_error(self, error: EarshotError) -> None:
        """Close because of an error."""
        self.fail(error.status, str(error), messages.retry_fields(error))

    def closing_error(self, code: int, text: str) -> bytes:
        """Return the `error` message to send before closing for a protocol fault or a timeout."""
        status = {1009: 413, 4408: 408}.get(code, 400)
        log.info("socket closed", session=keys.shown(self._session), code=code, reason=text)
        return messages.error_text(status, text)

    def _close(
        self,
        code: int,
        reason: str,
        status: int | None,
        fields: dict[str, int] | None = None,
        last: Sequence[bytes] = (),
    ) -> None:
        if self._phase is Phase.CLOSED:
            return
        view = self._view()
        texts = [*self._audio.acknowledgement(None if view is None else view.head), *last]
        if status == 404 and self.greeted:
            texts += [event.text for event in self._events.gone()]
        if status is not None:
            texts.append(messages.error_text(status, reason, fields))
            log.info("socket closed", session=keys.shown(self._session), code=code, reason=reason)
        self._finish(code, reason, texts)

    def _finish(self, code: int, reason: str, texts: list[bytes]) -> None:
        self._forget()
        self.wire.close(code, reason_bytes(reason), texts)

    def ended(self) -> None:
        """The connection is gone; appended chunks still get their verdicts."""
        self._forget()

    def _forget(self) -> None:
        if self._phase is Phase.CLOSED:
            return
        # A client may hang up once it has sent `end`; its earlier chunks are stored first.
        self._seals_late = self._phase is Phase.ENDING and not (self._moved or self._sealing)
        self._phase = Phase.CLOSED
        self.holds(0)
        self._cancel_timer()
        self._audio.drop()
        self._seal_late()
        for call in self._on_end:
            call()
        self._on_end.clear()
        self._note_drained()

    def _note_drained(self) -> None:
        """Leave the session if the socket is closed and no append is pending."""
        is_last = self._phase is Phase.CLOSED and self._entered.is_set() and not self._drained.done()
        if is_last and not self._audio.pending:
            self._drained.set_result(None)
            self._sockets.leave(self._session, self)
            del self._audio  # It refers to this object, and only a full garbage collection frees cycles.

    # --- audio in ---------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Append the next chunk."""
        if self._phase is Phase.CLOSED or self._moved:
            return
        if not self._sends:
            self.fail(400, "a socket that listens takes no audio")
        elif not data:
            self.fail(400, "an empty message holds no audio")
        elif self._phase is Phase.ENDING:
            self.refuse_audio()
        else:
            self._audio.take(data)
            self._pause_if_full()

    def refuse_audio(self) -> None:
        """Ignore further audio, because the session is read-only, and close after the last event."""
        self._phase, self._refuses = Phase.ENDING, True
        self._wake()

    def _pause_if_full(self) -> None:
        # A closed socket may have no audio any more.
        if self._phase is not Phase.CLOSED and self._audio.is_full:
            self.wire.pause_reading()

    def answered(self) -> None:
        """Handle the verdict of a chunk, or of the end of the audio."""
        if self._phase is Phase.CLOSED:
            self._seal_late()
            self._note_drained()
        else:
            if not self._audio.is_full:
                self.wire.resume_reading()
            self._wake()

    def received_text(self, data: bytes) -> None:
        """Handle a text message."""
        if self._phase is Phase.CLOSED or self._moved:
            return
        try:
            message = messages.read(data)
            if not self._sends:
                raise BadRequest("a socket that listens sends nothing")
            if isinstance(message, messages.Finish):
                self._phase = Phase.ENDING
                self._wake()
            else:
                self._audio.tell(message)
                self._pause_if_full()
        except BadRequest as error:
            self.refuse_error(error)

    def warn(self, text: str) -> None:
        """Tell the client what is left out, if it reads."""
        if not self.wire.blocked:
            self.wire.send([encode(messages.Warned(text))])

    def holds(self, size: int) -> None:
        """Reserve memory for an incomplete message."""
        try:
            if size > self._held:
                self._room.take(self.holder, size - self._held, self._frame_bytes)
            elif size < self._held:
                self._room.give_back(self.holder, self._held - size)
            self._held = size
        except Unavailable as error:
            self.refuse_error(error)

    # --- acknowledgements and events out ----------------------------------------------------------------------------

    def writable(self) -> None:
        """The client reads again."""
        self._wake()

    def _woken(self, lost: bool) -> None:
        if lost:
            self.leave()
        else:
            self._wake()

    def _wake(self) -> None:
        if not self._scheduled and self._phase is not Phase.CLOSED:
            self._scheduled = True
            self._sockets.turns.put(self.holder, self._speak)

    def _speak(self) -> None:
        """Send everything pending in one write."""
        self._scheduled = False
        if self._phase in (Phase.CLOSED, Phase.OPENING):
            return
        try:
            if self._moved:
                if not self._audio.pending:
                    self._leave_now()
                return
            view = self._context.sessions.view(self._session)
            if view is None:
                self.fail(404, NO_SESSION)
                return
            self._seal(view)
            self._tell(view)
        except Unavailable:
            self.leave()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        # The failure is logged; the client learns nothing internal.
        log.error("socket failed", session=keys.shown(self._session), exc_info=error)
        self.fail(500, "fault of the server")

    def _seal(self, view: SessionView) -> None:
        """Make the session read-only once everything before `end` is stored."""
        if self._phase is Phase.ENDING and not (self._sealing or self._audio.under_way):
            self._sealing = True
            if view.head.state is SessionState.WRITABLE:
                try:
                    self._audio.seal()
                except NotOwned:
                    raise
                except Unavailable as error:
                    self.refuse_error(error)

    def _seal_late(self) -> None:
        if self._seals_late and not self._audio.pending:
            self._seals_late = False
            if self._audio.complete:
                with suppress(EarshotError):
                    self._audio.seal()

    def _tell(self, view: SessionView) -> None:
        if self.wire.blocked or self._phase is Phase.CLOSED:
            return  # Acknowledgements accumulate, and events stay in their rows.
        events = [event.text for event in self._events.step(view, self._tap)]
        texts = self._acknowledgement(view.head, bool(events)) + events
        is_over = view.head.state is not SessionState.WRITABLE and not self._audio.under_way and self._events.finished
        if is_over and self._refuses:
            self._close(close_code(403), why_readonly(view.head.error), 403, last=texts)
        elif is_over:
            self._finish(OK, "", [*texts, encode(messages.End(self._events.cursor))])
        else:
            if texts:
                self.wire.send(texts)
            if self._events.more(view):
                self._wake()

    def _acknowledgement(self, head: SessionHead, goes_now: bool) -> list[bytes]:
        """Return the acknowledgement, if due. It waits for imminent events, because a write is what costs most."""
        soon = self._events.comes_with_windows and head.cursor.chunks < head.next
        if goes_now or not soon or head.state is not SessionState.WRITABLE:
            self._cancel_timer()
            return self._audio.acknowledgement(head)
        if self._ack_timer is None and self._audio.untold:
            self._ack_timer = self._loop.call_later(until_tick(self._loop.time()), self._acknowledge)
        return []

    def _acknowledge(self) -> None:
        self._ack_timer = None
        view = self._view()
        if self._phase is not Phase.CLOSED and not self.wire.blocked and view is not None:
            self.wire.send(self._audio.acknowledgement(view.head))

    def _view(self) -> SessionView | None:
        """Return the session; None if it was deleted, is damaged, or another node has it."""
        with suppress(EarshotError):
            return self._context.sessions.view(self._session)
        return None

    def _cancel_timer(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
