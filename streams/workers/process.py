"""A worker process as its parent sees it: asked, watched and killed."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from streams.decoders.processes import process_seconds
from streams.workers import messages
from streams.workers.messages import Answer, Request
from topics.errors import Unavailable

GREETING_SECONDS: Final = 30.0
#: States of a process, as proc(5) names them, in which it does not go on by itself, or is gone.
STUCK: Final = "SsTtZX"


class WorkerDied(Exception):
    """The worker ended, or was ended, before it answered: of this request or of another one."""


class StateLost(Exception):
    """The worker has no state of the session any more, through no fault of the session: it begins again."""


class Deadlines(msgspec.Struct, frozen=True):
    """How long a worker may work without an answer, in seconds: of processor time, of sleep, and whatever it does."""

    processor: float = 20.0
    idle: float = 1.0
    wall: float = 60.0


class Call(msgspec.Struct, eq=False):
    """A request on its way: what it asks, its audio, and who waits for the answer."""

    #: Returns the request for a worker.
    request: Callable[[WorkerProcess], Request]
    audio: Sequence[bytes | memoryview]
    answer: asyncio.Future[Answer]
    model: str
    #: Estimated work: seconds of audio.
    seconds: float = 0.0
    #: Of a recording; the worker lets it and live audio take turns.
    background: bool = False
    #: No other request may be in the worker meanwhile: a worker has died of it, or of one that it was with.
    alone: bool = False
    #: When it was made, monotonic.
    made: float = msgspec.field(default_factory=time.monotonic)


class WorkerProcess:
    """One worker, and the socket and memory that are shared with it. Loop only."""

    def __init__(self, line: socket.socket, memory: int, died: Callable[[WorkerProcess], None]) -> None:
        """Take over a socket and the descriptor of a memory; `died` is called once it has ended, however it did."""
        self._line = line
        self._memory = mmap.mmap(memory, 0)
        os.close(memory)
        self._died = died
        self._view = memoryview(self._memory)
        self._slot_bytes = len(self._view) // messages.SLOTS
        self._free = list(range(messages.SLOTS))
        self._calls: dict[int, Call] = {}
        self._unsent: list[int] = []
        self._handle: int | None = None
        self.process = 0
        self.filtered = False
        self.models: frozenset[str] = frozenset()
        self.closed = False
        #: Sessions whose state is here, and those whose state is to go with the next step.
        self.sessions: set[int] = set()
        self.forgotten: list[int] = []
        #: When it was forked, monotonic.
        self.born = time.monotonic()
        #: What is in work: seconds of audio, segments apart.
        self.seconds = 0.0
        self.segments = 0
        #: When it last answered, or got work while it had none, monotonic; and its processor time then, once looked at.
        self._moved = 0.0
        self._spent: float | None = None
        #: Its processor time when last looked at, and since when that is the same and it sleeps.
        self._seen = 0.0
        self._asleep_since: float | None = None
        self.answered: Callable[[WorkerProcess], None] = lambda process: None

    async def greet(self) -> None:
        """Wait until it is there.

        Raises:
            Unavailable: it was not forked.
        """
        loop = asyncio.get_running_loop()
        self._line.setblocking(False)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                data = await loop.sock_recv(self._line, messages.LINE_BYTES)
            greeting = messages.hello(data)
        except (OSError, TimeoutError, msgspec.MsgspecError):
            self.close()
            raise Unavailable("no worker can be started") from None
        except asyncio.CancelledError:
            self.close()
            raise
        self.process, self.filtered, self.models = greeting.process, greeting.filtered, frozenset(greeting.models)
        if hasattr(os, "pidfd_open"):
            # Its number may be another process's after its end.
            with suppress(OSError):
                self._handle = os.pidfd_open(self.process)
        self._loop = loop
        loop.add_reader(self._line.fileno(), self._read)

    def __len__(self) -> int:
        """Return how many requests are in work."""
        return len(self._calls)

    @property
    def has_slot(self) -> bool:
        return bool(self._free)

    @property
    def has_alone(self) -> bool:
        """Return whether it has a call that is to be alone."""
        return any(call.alone for call in self._calls.values())

    @property
    def calls(self) -> Sequence[Call]:
        return list(self._calls.values())

    def send(self, call: Call) -> None:
        """Write a request into a free slot; the worker is told at the end of this turn of the loop.

        Raises:
            StateLost: the session's state is elsewhere.
            Unavailable: it does not fit: this service takes smaller chunks than it took before. Nothing was sent.
        """
        view, data = self._view, messages.encode(call.request(self))
        if messages.LENGTH.size + len(data) + sum(map(len, call.audio)) > self._slot_bytes:
            raise Unavailable("a chunk is larger than this service takes now")
        slot = self._free.pop()
        start = slot * self._slot_bytes
        messages.LENGTH.pack_into(view, start, len(data))
        start += messages.LENGTH.size
        for part in (data, *call.audio):
            view[start : start + len(part)] = part
            start += len(part)
        call.audio = ()
        if not self._calls:
            self._moved, self._spent = time.monotonic(), None
        self._calls[slot] = call
        self._count(call, 1)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(slot)

    def _count(self, call: Call, sign: int) -> None:
        if call.background:
            self.segments += sign
        else:
            self.seconds += sign * call.seconds

    def _flush(self) -> None:
        slots, self._unsent = bytes(self._unsent), []
        if not self.closed:
            with suppress(OSError):  # It has ended: the next read says so.
                self._line.send(slots)

    def _read(self) -> None:
        try:
            slots = self._line.recv(messages.LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            slots = b""
        if not slots:
            self._end()
            return
        self._moved, self._spent = time.monotonic(), None
        for slot in slots:
            if (call := self._calls.pop(slot, None)) is None:
                self._end()  # It answers what nobody asked: it is no longer ours.
                return
            self._count(call, -1)
            try:
                answer = self._answer(slot)
            except (msgspec.MsgspecError, ValueError):
                self._calls[slot] = call
                self._end()
                return
            self._free.append(slot)
            if not call.answer.done():
                call.answer.set_result(answer)
        self.answered(self)

    def _answer(self, slot: int) -> Answer:
        start = slot * self._slot_bytes
        (length,) = messages.LENGTH.unpack_from(self._view, start)
        start += messages.LENGTH.size
        if length > self._slot_bytes - messages.LENGTH.size:
            raise ValueError(length)
        # A copy: it may be changed while it is read.
        answer: Answer = messages.answer(bytes(self._view[start : start + length]))
        return answer

    def forget(self, session: int) -> None:
        """The state of a session is needed no more; the worker hears of it with the next step."""
        if session in self.sessions:
            self.sessions.discard(session)
            self.forgotten.append(session)

    def take_forgotten(self) -> tuple[int, ...]:
        forgotten, self.forgotten = tuple(self.forgotten), []
        return forgotten

    def look(self, deadlines: Deadlines) -> str | None:
        """Return why it is to be ended, None if it works or has nothing to do."""
        if not self._calls:
            return None
        now, seconds = time.monotonic(), process_seconds(self.process)
        if self._spent is None:
            self._spent, self._asleep_since = seconds, None
        if seconds - self._spent > deadlines.processor or now - self._moved > deadlines.wall:
            return "it worked for too long"
        if seconds != self._seen or not self._is_stuck():
            self._seen, self._asleep_since = seconds, None
        elif self._asleep_since is None:
            self._asleep_since = now
        elif now - self._asleep_since > deadlines.idle:
            return "it does nothing"
        return None

    def _is_stuck(self) -> bool:
        try:
            status = Path(f"/proc/{self.process}/stat").read_text()
        except OSError:
            return False  # Not known here, or it is gone, which its socket tells.
        return status.rpartition(") ")[2][:1] in STUCK

    def kill(self) -> None:
        """End it, whatever it does; its socket tells when that is done."""
        with suppress(OSError):  # It has ended.
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self.process:
                os.kill(self.process, signal.SIGKILL)

    def _end(self) -> None:
        if not self.closed:
            self._died(self)
            self.close(WorkerDied)

    def close(self, reason: type[Exception] = StateLost) -> None:
        """End it; those that wait for an answer get an exception. Allowed twice."""
        if self.closed:
            return
        self.closed = True
        for call in self.calls:
            if not call.answer.done():
                call.answer.set_exception(reason())
        if self.process:
            self._loop.remove_reader(self._line.fileno())
            self.kill()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._line.close()
        self._calls.clear()
        self._view.release()
        self._memory.close()
