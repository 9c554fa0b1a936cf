"""A connection upgraded to WebSocket: `websockets` makes the frames, this module bounds client input.

The library does the protocol without I/O; this module adds the connection. All connections are checked once a second,
so a deadline costs no timer.
"""

import asyncio
from random import random
from time import perf_counter
from typing import Final

from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, State

from app.http.sockets import IDLE, TOO_BIG, Receiver
from app.http.turns import SLICE_SECONDS
from infra.transport.connections import Connections
from infra.transport.entrance import Entry
from infra.transport.unread import Unread, cut

#: Seconds that a client has to read the close frame.
LINGER_SECONDS: Final = 2.0
#: Pings sent within the time in which a client must answer.
PINGS: Final = 3
#: The most frames of one message.
FRAGMENTS: Final = 16_384
#: Bytes of input handled before the clock is read: the fewest after a slice of more than `FRAMES` frames, since each
#: takes some 10 us at any size, else up to the most.
SLICES: Final = 512, 4096
FRAMES: Final = 16
#: Frames examined after this side has closed.
IGNORED: Final = 512
#: Bytes of a frame that are read after this side has closed.
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
        #: Input not handled yet: it came after the request, or took too long; and how much is handled at a time.
        self._backlog = b""
        self._slice = SLICES[0]
        self._waits = False
        self._entry = Entry(door.entrance, transport, self.data_received, receiver.holder)

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
            self._entry.answered()

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
        self._parts = bytearray()
        if len(self._protocol.reader.buffer) + len(self._backlog) > SMALL:
            # What has come of a message goes at once. Its rest cannot be told from what follows.
            self._protocol.reader.buffer.clear()
            self._backlog, self._is_over = b"", True
        self._flush()
        # Discard input until the client has read the close frame.
        self._reading = False
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._closing is None:
            self._reading = False
            self._entry.pause()

    def resume_reading(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading, self._moved = True, self._door.precise_now()
            if self._backlog:
                self._wait()
            else:
                self._entry.wait(is_inside=bool(self._held))

    def _flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data and not self._transport.is_closing():
            self._unread.written += len(data)
            self._transport.write(data)

    # --- what the transport does ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._moved = self._door.precise_now()
        if not self._is_over:
            self._backlog += data
        self._go_on()

    def _wait(self) -> None:
        """Go on at the holder's next turn, which is for all of its connections."""
        if not self._waits:
            self._waits = True
            self._door.turns.put(self._receiver.holder, self._go_on_reading)

    def _go_on(self) -> None:
        """Handle input for one turn: small frames cost as much as large ones."""
        data, self._backlog, at = self._backlog, b"", 0
        until = perf_counter() + SLICE_SECONDS
        while at < len(data) and self._reading and perf_counter() < until:
            piece = data[at : at + self._slice]
            at += len(piece)
            self._slice = SLICES[0] if self._feed(piece) > FRAMES else min(2 * self._slice, SLICES[1])
        if at < len(data) and not self._is_over:
            self._backlog = data[at:]
        self._count()
        if self._reading and not self._transport.is_closing():
            if self._backlog:
                self._wait()
            else:
                self._entry.wait(is_inside=bool(self._held))

    def _go_on_reading(self) -> None:
        self._waits = False
        if self._reading and not self._transport.is_closing():
            self._go_on()

    def _feed(self, data: bytes) -> int:
        """Handle some input; return the number of its frames."""
        protocol = self._protocol
        if self._is_over or (self._closing is not None and len(protocol.reader.buffer) > SMALL):
            return 0
        protocol.receive_data(data)
        frames = protocol.events_received()
        for frame in frames:
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
        return len(frames)

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

    def _count(self) -> None:
        """Report the memory that input takes until it is a whole message."""
        held = len(self._backlog) + len(self._protocol.reader.buffer) + len(self._parts)
        if held != self._held and self._closing is None:
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
        self._entry.close()
        self._state.connections.discard(self)
        self._receiver.ended()
        # Break reference cycles; otherwise the objects would wait for a full garbage collection.
        self._protocol.parser.close()
        del self._receiver

    # --- deadlines --------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self._receiver.leave()

    def check(self, now: float) -> None:
        """End whatever is late: a client that is silent, that does not read, or that does not close."""
        idle = self._door.limits.idle_seconds
        if self._closing is not None:
            if now - self._closing > LINGER_SECONDS:
                cut(self._transport)
            return
        waited = self._unread.left
        if self._unread.is_read(self._transport.get_write_buffer_size()) or not waited:
            self._stuck = now
        if now - self._stuck >= idle:
            self._give_up(f"nothing was taken for {idle:g} s")
            return
        if not self._reading or self._waits or self._entry.is_due:
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
