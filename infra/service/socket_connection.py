"""A connection upgraded to WebSocket: `websockets` makes the frames, this module bounds client input.

The library does the protocol without I/O; this module adds the connection. All connections are checked once a second,
so a deadline costs no timer.
"""

import asyncio
from random import random
from typing import Final

from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, State

from app.http.sockets import IDLE, TOO_BIG, Receiver
from infra.service.connections import Connections
from infra.service.unread import Unread

#: Seconds that a client has to read the close frame.
LINGER_SECONDS: Final = 2.0
#: Pings sent within the time in which a client must answer.
PINGS: Final = 3
#: The most frames of one message.
FRAGMENTS: Final = 16_384
#: Bytes read at a time, and seconds after which other connections get their turn.
SLICE: Final = 8 * 1024
TURN_SECONDS: Final = 0.002
#: After a turn with more than `TINY_FRAMES` frames of one message, a connection rests `REST` times as long.
TINY_FRAMES: Final = 256
REST: Final = 25
#: Frames examined after this side has closed.
IGNORED: Final = 512
#: Bytes of an incomplete message that are not counted as held.
SMALL: Final = 64 * 1024


class SocketConnection(asyncio.Protocol):
    """Serves one upgraded connection. Implements `app.http.sockets.Wire`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: Protocol,
        receiver: Receiver,
        door: Connections,
        state: ServerState,
        address: str,
    ) -> None:
        self.address = address
        self._transport = transport
        self._protocol = protocol
        self._receiver = receiver
        self._door = door
        self._state = state
        #: The data of an incomplete message, from all its frames.
        self._parts = bytearray()
        self._held = 0
        self._reading = False
        self.blocked = False
        #: When the client last sent something, was pinged, read something, and was sent the close frame.
        self._moved = self._stuck = door.precise_now()
        # Sockets that come together, after a restart for example, are pinged in turn.
        self._pinged = door.now - random() * door.limits.idle_seconds / PINGS
        self._unread = Unread()
        self._closing: float | None = None
        self._text = False
        #: Nothing more is read: both sides have closed, or the client broke the protocol.
        self._is_over = False
        self._fragments = 0
        #: Frames received after this side closed; one may be the client's close.
        self._ignored = 0
        self._loop = asyncio.get_running_loop()
        #: Unread input: it came after the request, or during the turn of other connections.
        self._backlog = b""
        transport.pause_reading()

    def take_over(self, answer: bytes, early: bytes) -> None:
        """Become the protocol of the connection; nothing is read until the receiver resumes it."""
        self._door.admit(self)
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._transport.set_protocol(self)
        self._transport.write(answer)
        self._backlog = early

    # --- what the receiver does -------------------------------------------------------------------------------------

    def send(self, texts: list[bytes]) -> None:
        """Send text messages in one write."""
        if self._closing is None:
            for text in texts:
                self._protocol.send_text(text)
            self._flush()

    def close(self, code: int, reason: str, texts: list[bytes]) -> None:
        """Send the last messages and close, once the client has read them or `LINGER_SECONDS` have passed."""
        if self._closing is not None:
            return
        if self._protocol.state is State.OPEN:
            for text in texts:
                self._protocol.send_text(text)
            self._protocol.send_close(code, reason)
        self._end()

    def _end(self) -> None:
        self._closing = self._door.now
        self._parts, self._backlog = bytearray(), b""
        self._flush()
        # Discard input until the client has read the close frame.
        self._reading = False
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._reading and not self._transport.is_closing() and self._closing is None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading, self._moved = True, self._door.precise_now()
            if self._backlog:
                self._loop.call_soon(self._go_on_reading)
            else:
                self._transport.resume_reading()

    def _flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data and not self._transport.is_closing():
            self._unread.written += len(data)
            self._transport.write(data)

    # --- what the transport does ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._moved = self._door.precise_now()
        self._backlog += data
        self._go_on()

    def _go_on(self) -> None:
        """Read input until this connection's turn ends: small frames cost as much as large ones."""
        data, self._backlog = self._backlog, b""
        begun, fragments = self._loop.time(), self._fragments
        for at in range(0, len(data), SLICE):
            self._feed(data[at : at + SLICE])
            is_last = at + SLICE >= len(data) or self._closing is not None
            if not is_last and (not self._reading or self._loop.time() - begun > TURN_SECONDS):
                self._backlog = data[at + SLICE :]
                self._transport.pause_reading()
                if self._reading:
                    rest = REST if self._fragments - fragments > TINY_FRAMES else 0
                    self._loop.call_later(rest * (self._loop.time() - begun), self._go_on_reading)
                return

    def _go_on_reading(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._go_on()
            if self._reading and not self._backlog and not self._transport.is_closing():
                self._transport.resume_reading()

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if self._is_over or (self._closing is not None and len(protocol.reader.buffer) > SMALL):
            return
        protocol.receive_data(data)
        for frame in protocol.events_received():
            if self._closing is not None:
                self._ignored += 1
            elif isinstance(frame, Frame):
                self._take(frame)
        self._is_over = self._ignored > IGNORED
        if protocol.eof_sent:
            self._is_over = True
            self._over()
        elif self._closing is None:
            if self.blocked:
                protocol.data_to_send()  # Only pongs, which the client does not get.
            else:
                self._flush()
            self._count(len(protocol.reader.buffer) + len(self._parts))

    def _take(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.BINARY or opcode is Opcode.TEXT:
            if not frame.fin:
                self._text, self._fragments = opcode is Opcode.TEXT, 1
                self._parts = bytearray(frame.data)
            elif opcode is Opcode.BINARY:
                self._receiver.received(bytes(frame.data))
            else:
                self._receiver.received_text(bytes(frame.data))
        elif opcode is Opcode.CONT:
            self._parts += frame.data
            self._fragments += 1
            if self._fragments > FRAGMENTS:
                reason = f"a message has more than {FRAGMENTS} frames"
                self.close(TOO_BIG, reason, [self._receiver.closing_error(TOO_BIG, reason)])
                self._receiver.ended()
            elif frame.fin:
                whole, self._parts = bytes(self._parts), bytearray()
                (self._receiver.received_text if self._text else self._receiver.received)(whole)

    def _over(self) -> None:
        fault = self._protocol.parser_exc
        if fault is not None and self._closing is None:
            too_big = isinstance(fault, PayloadTooBig)
            text = "a message is larger than frame_bytes" if too_big else f"not WebSocket: {fault}"
            told = Frame(Opcode.TEXT, self._receiver.closing_error(TOO_BIG if too_big else 1002, text)).serialize(
                mask=False
            )
            self._transport.write(told)
        if self._closing is None:
            self._end()
            self._receiver.ended()
        elif fault is not None:
            # Close when the client does, or late: a proxy in between would end both sides, and lose the close frame.
            return
        else:
            self._flush()
        if fault is None:
            self._transport.close()
        elif not self._transport.is_closing():
            # If more of a message is on its way, closing at once would reset the connection and lose the last message.
            self._transport.write_eof()

    def _count(self, held: int) -> None:
        if held <= SMALL:
            held = 0
        if held != self._held:
            self._held = held
            self._receiver.holds(held)

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        self._receiver.writable()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        self._state.connections.discard(self)
        self._receiver.ended()
        # Break reference cycles; otherwise the objects would wait for a full garbage collection.
        self._protocol.parser.close()
        del self._receiver

    # --- deadlines --------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self._receiver.leave()

    def look(self, now: float) -> None:
        """End whatever is late: a client that is silent, that does not read, or that does not close."""
        idle = self._door.limits.idle_seconds
        if self._closing is not None:
            if now - self._closing > LINGER_SECONDS:
                self._transport.abort()
            return
        waited = self._unread.left
        if self._unread.is_read(self._transport.get_write_buffer_size()) or not waited:
            self._stuck = now
        if now - self._stuck >= idle:
            self._give_up(f"nothing was taken for {idle:g} s")
            return
        if not self._reading:
            self._moved = now  # The node makes the client wait.
        if now - self._moved > idle:
            self._give_up(f"no frame and no pong for {idle:g} s")
        elif now - self._pinged >= idle / PINGS:
            self._pinged = now
            self._protocol.send_ping(b"")
            self._flush()

    def _give_up(self, reason: str) -> None:
        self._door.refused[reason] += 1
        self.close(IDLE, reason, [self._receiver.closing_error(IDLE, reason)])
        self._receiver.ended()
