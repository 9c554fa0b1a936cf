"""Connections of clients, with bounds on the size and duration of their input.

`Connections.watch` checks deadlines once a second for all connections, so a request costs no timer.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

import msgspec
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from app.http.addresses import client_address
from app.http.bodies import DISCARDED_BYTES
from app.http.call import HOLDER
from app.http.sockets import EXTENSION
from app.http.turns import ITERATION_SECONDS, Measured, stranger
from infra.transport.connections import HELD_BYTES, POLL_SECONDS, Connections
from infra.transport.entrance import Entry
from infra.transport.pairing_transport import PairingTransport, at_once
from infra.transport.request_parser import RequestFault, RequestParser
from infra.transport.socket_upgrade import SocketUpgrade
from infra.transport.unread import cut
from topics.turns import Holder

#: Seconds of the loop that a connection may have used before its sender, perhaps not known yet, is charged.
OWED_SECONDS: Final = 0.005
#: Requests that a client may send before the first is answered.
PIPELINED: Final = 16
#: Seconds that a refused client has to read the answer, and bytes of its input discarded meanwhile.
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 256 * 1024


class ClientConnection(RequestParser):
    """Serves one connection; sends a complete answer in one system call and one packet instead of two."""

    def __init__(self, *args: Any, door: Connections, first: bytes = b"", **kwargs: Any) -> None:
        """Serve a connection; `first` is what another lane has read of it."""
        super().__init__(*args, **kwargs)
        self._first = first
        #: A request is handed over once at most, even if lanes disagree about its owner.
        self._may_leave = door.lanes is not None and not first
        self.address = ""
        self.door = door
        self._raw: asyncio.Transport
        self._receiving = True
        #: When the request began, its body last advanced, and the client last read something of its answers.
        self._began = self._moved = self._stuck = door.now
        #: Who sends on this connection, as far as is known, and the input that waits for its turn.
        self._sender: Holder | None = None
        self._waiting = b""
        #: Seconds of the loop that its requests took, not charged yet.
        self._seconds = 0.0
        #: Seconds of the loop that count for a request that has not begun, and that are expected of the next one.
        self._advanced, self._expected = 0.0, ITERATION_SECONDS
        #: Ends a connection that was refused.
        self._lingering: asyncio.TimerHandle | None = None
        #: The connection closes at the end of a request that is answered already.
        self._leaving = False
        #: The answer to a request that is not served, once earlier ones are answered; what follows is ignored.
        self._refusal: tuple[int, str] | None = None
        #: Reads the connection between an answered chunk and the next request.
        self._entry: Entry | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start serving, or refuse with 503 if there are too many connections."""
        super().connection_made(transport)
        self._raw = transport
        self.transport = PairingTransport(transport, self.loop, self._leave)
        self.address = self.client[0] if self.client else ""
        if not self.door.admit(self):
            self._end_with(503, "this node has too many connections", b"retry-after: 1\r\n")

    def begin(self) -> None:
        """Handle what another lane has read. Not in `connection_made`, where uvloop would forget a pause of reading."""
        data, self._first = self._first, b""
        self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        self._leave_entrance()
        if self._seconds:
            self._charge()
        if self._lingering is not None:
            self._lingering.cancel()
        super().connection_lost(exc)
        # Break the reference cycle; otherwise ten thousand connections would wait for a full garbage collection.
        cast(PairingTransport, self.transport).leave = at_once

    # --- what is received -------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._first:
            self._first += data
            return
        if self._lingering is not None:
            self._framing += len(data)
            if self._framing > LINGER_BYTES:
                cut(self._raw)
            return
        if self._raw.is_closing():
            return
        self._unset_keepalive_if_required()
        if self._waiting:
            self._handle_waiting()
            self._handle(data)
        elif self.door.turns.is_free() or self.door.held + len(data) > HELD_BYTES:
            begun = perf_counter()
            self._handle(data)
            self._took(perf_counter() - begun)
        else:
            self._waiting = data
            self._raw.pause_reading()
            if self.cycle is not None:
                self._note_sender()
            self.door.held += len(data)
            self.door.turns.put(self._sender or stranger(self.address), self._handle_waiting)

    def _note_sender(self) -> None:
        """Attribute what comes next on this connection to the sender of its last request."""
        sender = self.door.sender(cast(dict[str, Any], self.cycle.scope))
        if sender != self._sender:
            if self._sender is not None:
                self._charge()
            self._sender = sender

    def _took(self, seconds: float, counted: float = 0.0) -> None:
        """Count seconds of the loop, `counted` of which count already for its iterations."""
        self._seconds += seconds
        self.door.turns.spend(seconds - counted)
        if self._seconds > OWED_SECONDS:
            self._charge()

    def _charge(self) -> None:
        if self._sender is None and self.cycle is not None:
            self._note_sender()
        self.door.turns.charge(self._sender or stranger(self.address), self._seconds)
        self._seconds = 0.0

    def eof_received(self) -> None:
        # The connection closes now, and its last request may still have an effect.
        self._handle_waiting()

    def _enter(self) -> None:
        """Leave the next request to the entrance, because the last one was a chunk."""
        holder = self._sender or stranger(self.address)
        if self._entry is None:
            self._entry = Entry(self.door.entrance, self._raw, self._enters, holder)
        self._raw.pause_reading()
        self._entry.holder = holder
        self._entry.answered()
        self._entry.wait(is_inside=False)

    def _enters(self, data: bytes) -> None:
        """Handle input at the holder's turn; the transport reads on unless it is a whole chunk."""
        self._unset_keepalive_if_required()
        self._handle(data)
        if (self._receiving or not _is_chunk(self.cycle)) and not self._raw.is_closing():
            self._raw.resume_reading()

    def _leave_entrance(self) -> None:
        if self._entry is not None:
            self._entry.close()
            self._entry = None

    def shutdown(self) -> None:
        if self._entry is not None:
            self._entry.read()
        self._handle_waiting()
        super().shutdown()
        if self._leaving:
            self._raw.close()

    def _leave(self) -> bool:
        """Return whether closing must wait for the rest of an answered request.

        Closing at once would reset the connection, and a client that writes before it reads would lose the answer.
        """
        if self._discards and not self._leaving:
            self._leaving = True
            self._raw.write_eof()
        return self._leaving

    def _handle_waiting(self) -> None:
        if self._waiting:
            data, self._waiting = self._waiting, b""
            self.door.held -= len(data)
            if not self.flow.read_paused and not self._raw.is_closing():
                self._raw.resume_reading()
            self._handle(data)

    def _handle(self, data: bytes) -> None:
        if self._raw.is_closing() or self._lingering is not None or self._refusal is not None:
            return
        if self._may_leave and self._goes(data):
            return
        if (fault := self._fault_in(data)) is not None:
            if not self._raw.is_closing():  # What follows the last request is ignored.
                self.refuse(*fault)
        elif self._discards:
            self.cycle.body.clear()
            self.flow.pause_reading()
            self.loop.call_later(self.door.discard(len(data)), self._read_on)

    def _goes(self, data: bytes) -> bool:
        """Hand the connection over if its next request, which begins with `data`, is for another lane."""
        cycle, lanes = self.cycle, self.door.lanes
        between = not (self._framing or self.pipeline) and (cycle is None or cycle.response_complete)
        if lanes is None or not between or (lane := lanes.named(data)) is None:
            return False
        return self.give(lane, data)

    def give(self, lane: int, data: bytes) -> bool:
        """Hand the connection and its input over to another lane; return False if that is impossible now."""
        lanes = self.door.lanes
        if not self._may_leave or lanes is None or not lanes.give(lane, self._raw, data):
            return False
        # At once, because the other lane counts it from now on.
        self.door.leave(self)
        if (cycle := self.cycle) is not None:
            cycle.response_started = cycle.response_complete = cycle.disconnected = True
        self._raw.close()
        return True

    @property
    def _discards(self) -> bool:
        """Whether the rest of an answered request is arriving."""
        cycle = self.cycle
        return cycle is not None and cycle.response_complete and cycle.more_body and not self._raw.is_closing()

    def _read_on(self) -> None:
        if not self._raw.is_closing():
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        if self._raw.is_closing():
            raise ValueError
        super().on_message_begin()
        self._receiving = True
        self._began = self._moved = self.door.now

    def on_headers_complete(self) -> None:
        """Serve a request, or queue it behind earlier ones."""
        upgrades = self._upgrades()
        if self._parses_again:
            return
        if len(self.pipeline) >= PIPELINED:
            raise RequestFault(400, f"more than {PIPELINED} requests wait for the answer to the first")
        self._check_head()
        if proxies := self.door.limits.trusted_proxies:
            self.scope["client"] = client_address(self.address, self.headers, proxies), 0
        if upgrades:
            self.flow.pause_reading()
            scope = cast(dict[str, Any], self.scope)
            scope["extensions"] = {EXTENSION: SocketUpgrade(self, scope)}
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        def measured(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> Awaitable[None]:
            sent = partial(_send_unframed, cycle, send) if cycle.scope["http_version"] == "1.0" else send
            return Measured(app(scope, receive, sent).__await__(), self._stepped)

        # The task begins in the next iteration. Until it is known what that takes, as much counts as is expected.
        self._advanced = min(self._expected, ITERATION_SECONDS)
        self.door.turns.spend(self._advanced)
        super()._start_asgi_task(cycle, measured)

    def _stepped(self, seconds: float) -> None:
        advanced, self._advanced = self._advanced, 0.0
        if advanced:
            self._expected = max(seconds, self._expected / 2)
        self._took(seconds, advanced)

    def on_response_complete(self) -> None:
        """Start the next request; pause reading while requests wait."""
        is_last = not self.pipeline
        if self._sender is None or HOLDER in self.cycle.scope:
            self._note_sender()
        super().on_response_complete()
        if is_last and self._refusal is not None and not self._raw.is_closing():
            self._end_with(*self._refusal)
            return
        if self.pipeline:
            self.flow.pause_reading()
        elif _is_chunk(self.cycle) and not (self._receiving or self._waiting or self._raw.is_closing()):
            self._enter()

    def on_body(self, body: bytes) -> None:
        self._moved = self.door.now
        super().on_body(body)
        if self.cycle.response_complete and self._body > DISCARDED_BYTES:
            self.refuse(413, "the rest of a request that was answered is too large to discard")

    def on_message_complete(self) -> None:
        if self._parses_again:
            return
        super().on_message_complete()
        self._receiving = False
        self._may_leave = self.door.lanes is not None
        self.cycle.more_body = False  # uvicorn leaves it if the request is answered already.
        if self._leaving:
            self._raw.close()

    # --- another protocol -------------------------------------------------------------------------------------------

    def hand_over(self) -> asyncio.Transport | None:
        """Give the connection away and answer nothing more on it; return None if the client has hung up."""
        if self._raw.is_closing():
            return None
        cycle = self.cycle
        cycle.response_started = cycle.response_complete = cycle.disconnected = True
        self.connections.discard(self)
        self.door.leave(self)
        self._leave_entrance()
        # Break the reference cycles: `connection_lost` is not called.
        self.parser = None  # type: ignore[assignment]
        cast(PairingTransport, self.transport).leave = at_once
        cast(dict[str, Any], self.scope)["extensions"].clear()
        return self._raw

    # --- deadlines --------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """End whatever is late: an incomplete request, an unread answer, a client that does not leave."""
        limits, untaken = self.door.limits, self._raw.get_write_buffer_size()
        if cast(PairingTransport, self.transport).unread.is_read(untaken):
            self._stuck = now
        if untaken and now - self._stuck > limits.idle_seconds:
            self.door.refused["an answer that was not taken"] += 1
            cut(self._raw)
            return
        if not self._receiving or self._lingering is not None or self._raw.is_closing():
            return
        if self._waiting or self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue):
            # The node makes the client wait, so its deadlines move.
            self._began += POLL_SECONDS
            self._moved += POLL_SECONDS
            return
        idle = now - self._moved > limits.idle_seconds
        if idle or now - self._began > limits.idle_seconds + self._body / limits.slowest:
            self.refuse(408, "the request did not arrive in time")

    def refuse(self, status: int, message: str) -> None:
        """Answer a request that is not served, if that is still possible, and close."""
        self.door.refused[message] += 1
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            answered = bool(self._framing) and not self._discards
        elif self.pipeline or not cycle.more_body:
            if cycle.more_body:
                self.pipeline.popleft()
            self._refusal, self._receiving = (status, message), False
            return
        else:
            answered = not cycle.response_started
            cycle.disconnected = True
            cycle.message_event.set()
        if answered:
            self._end_with(status, message)
        else:
            self._raw.close()

    def _end_with(self, status: int, message: str, headers: bytes = b"") -> None:
        body = msgspec.json.encode({"error": message, "status_code": status})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self._raw.write(b"".join((STATUS_LINE[status], head, headers, b"\r\n", body)))
        # If more of the request is on its way, closing at once would reset the connection and lose the answer.
        self._raw.write_eof()
        self._framing = 0
        self._lingering = self.loop.call_later(LINGER_SECONDS, cut, self._raw)


def _is_chunk(cycle: RequestResponseCycle) -> bool:
    return cycle.scope["method"] == "PUT" and "/chunks/" in cycle.scope["path"]


async def _send_unframed(cycle: RequestResponseCycle, send: ASGISendCallable, message: ASGISendEvent) -> None:
    """Send an answer of unknown length that ends with the connection: HTTP/1.0 knows no chunks."""
    cycle.chunked_encoding = False
    if message["type"] == "http.response.body":
        cycle.expected_content_length = len(message.get("body", b""))
    await send(message)
