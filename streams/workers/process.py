"""A worker process as seen by its parent, which sends requests, watches it and kills it."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from streams.processes.child import Child, Deadlines, Stopwatch
from streams.processes.messages import hello
from streams.workers import messages
from streams.workers.messages import Answer, Block, Fault, Request
from topics.errors import AudioError, AudioTooLong, EngineError, Unavailable

GREETING_SECONDS: Final = 30.0
#: For each answer.
DEADLINES: Final = Deadlines(processor=20.0, idle=1.0, wall=60.0)
#: Seconds over which its load is averaged.
LOAD_SECONDS: Final = 10.0
#: CPU time of a worker per second of audio, until it is measured; and the seconds of audio over which it is averaged.
FIRST_COST: Final = 0.005
COST_SECONDS: Final = 10.0
#: Characters of a message that are kept: a compromised worker could send megabytes.
LONGEST_FAULT: Final = 512


class WorkerDied(Exception):
    """The worker ended, or was ended, before it answered; this request or another may be the cause."""

    def __init__(self, killed: bool = False, fault: str | None = None) -> None:
        """`killed` if something outside ended it, so that no request is to blame; or why this process ended it."""
        super().__init__()
        self.killed = killed
        self.fault = fault


class StateLost(Exception):
    """The worker no longer has the session's state, through no fault of the session; begin it again."""


class DoesNotFit(Unavailable):
    """A request is larger than a slot: the chunk limit was lowered."""


class ModelMissing(Unavailable):
    """New workers do not have the model, because it could not be loaded again; it is retried."""


class WorkerFault(Exception):
    """A worker's own program failed."""


def error_of(answer: Answer) -> Exception:
    """Return the exception for an answer that is no result."""
    if not isinstance(answer, Fault):
        return StateLost()
    if answer.disk is not None:
        return OSError(answer.disk, os.strerror(answer.disk))
    message = answer.message[:LONGEST_FAULT]
    if answer.audio:
        return (AudioTooLong if answer.too_long else AudioError)(message)
    return EngineError(message) if answer.engine else WorkerFault(message)


class Call(msgspec.Struct, eq=False):
    """A request in flight: its content, its audio and the future for its answer."""

    #: Builds the request for a worker.
    request: Callable[[WorkerProcess], Request]
    audio: Sequence[bytes | memoryview]
    answer: asyncio.Future[Answer]
    #: None if it needs no model.
    model: str | None
    #: Seconds of audio.
    seconds: float = 0.0
    #: Its answer may be long.
    large: bool = False
    #: The samples that followed its answer.
    samples: bytearray = msgspec.field(default_factory=bytearray)
    #: Must be the worker's only request: a worker died with it before.
    alone: bool = False
    #: When it was created, monotonic.
    made: float = msgspec.field(default_factory=time.monotonic)

    @property
    def small(self) -> bool:
        """Whether it fits a small slot."""
        return not self.large and sum(map(len, self.audio)) <= messages.SMALL_AUDIO_BYTES


class WorkerProcess:
    """One worker, with the socket and memory shared with it. Loop only."""

    def __init__(self, line: socket.socket, memory: int, died: Callable[[WorkerProcess], None], born: float) -> None:
        """Take over a socket and a memory's descriptor; call `died` if the process ends without `close`.

        `born` is a monotonic time before it was forked: it has at least the models that were loaded then.
        """
        self._line = line
        self._memory = mmap.mmap(memory, 0)
        os.close(memory)
        self._died = died
        self._slots = messages.slots_of(self._memory)
        self._free = list(range(messages.SLOTS))
        self._free_small = list(range(messages.SLOTS, len(self._slots)))
        self._calls: dict[int, Call] = {}
        self._unsent: list[int] = []
        self.child = Child(0)
        self.filtered = False
        self.models: frozenset[str] = frozenset()
        self.closed = False
        #: Sessions with state in the worker, and those to drop with the next step.
        self.sessions: set[int] = set()
        self.forgotten: list[int] = []
        self.born = born
        #: Seconds of audio in work.
        self.seconds = 0.0
        #: Measures the time since its last answer, or since it got work while idle; and why it must be ended.
        self._stopwatch: Stopwatch | None = None
        self.fault: str | None = None
        #: Recent share of time it spent computing; when it was last measured, and its CPU time then.
        self.load = 0.0
        self._checked, self._spent = self.born, 0.0
        #: Recent share of time in which it had something to do: on a machine that is too small, it does not compute
        #: all the time.
        self.busy = 0.0
        #: Its recent CPU time per second of audio; and the audio answered since it was last measured.
        self.cost = FIRST_COST
        self._heard = 0.0
        self.answered: Callable[[WorkerProcess], None] = lambda process: None

    async def greet(self) -> None:
        """Wait for its greeting.

        Raises:
            Unavailable: it was not forked.
        """
        loop = asyncio.get_running_loop()
        self._line.setblocking(False)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                data = await loop.sock_recv(self._line, messages.LINE_BYTES)
            greeting = hello(data)
        except (OSError, msgspec.MsgspecError):
            self.close()
            raise Unavailable("no worker can be started") from None
        except asyncio.CancelledError:
            self.close()
            raise
        self.child, self.filtered, self.models = Child(greeting.process), greeting.filtered, frozenset(greeting.models)
        self._loop = loop
        loop.add_reader(self._line.fileno(), self._read)

    def __len__(self) -> int:
        return len(self._calls)

    def has_slot(self, call: Call) -> bool:
        return bool(self._free_for(call))

    def _free_for(self, call: Call) -> list[int]:
        return self._free_small if self._free_small and call.small else self._free

    @property
    def has_alone(self) -> bool:
        return any(call.alone for call in self._calls.values())

    def send(self, call: Call) -> None:
        """Write a request into a free slot; notify the worker at the end of this turn of the loop.

        Raises:
            StateLost: another worker has the session's state.
            DoesNotFit: nothing was sent.
        """
        free, forgotten = self._free_for(call), self.forgotten
        slot, data = free[-1], messages.encode(call.request(self))
        memory, start = self._slots[slot], messages.LENGTH.size
        if start + len(data) + sum(map(len, call.audio)) > len(memory):
            self.forgotten = forgotten
            raise DoesNotFit("a chunk is larger than this service takes now")
        free.pop()
        messages.LENGTH.pack_into(memory, 0, len(data))
        for part in (data, *call.audio):
            memory[start : start + len(part)] = part
            start += len(part)
        call.audio = ()
        if not self._calls:
            self._stopwatch = None
        self._calls[slot] = call
        self.seconds += call.seconds
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(slot)

    def _flush(self) -> None:
        slots, self._unsent = bytes(self._unsent), []
        if not self.closed:
            with suppress(OSError):  # It has ended; the next read notices.
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
        self._stopwatch = None
        for slot in slots:
            if (call := self._calls.pop(slot, None)) is None:
                self._end()  # It answers no request of ours, so it cannot be trusted.
                return
            self.seconds -= call.seconds
            self._heard += call.seconds
            try:
                answer = self._answer(slot, call)
            except (msgspec.MsgspecError, ValueError):
                self._calls[slot] = call
                self._end()
                return
            (self._free if slot < messages.SLOTS else self._free_small).append(slot)
            if not call.answer.done():
                call.answer.set_result(answer)
        self.answered(self)

    def _answer(self, slot: int, call: Call) -> Answer:
        memory, start = self._slots[slot], messages.LENGTH.size
        (length,) = messages.LENGTH.unpack_from(memory)
        if length > len(memory) - start:
            raise ValueError(length)
        # Copy: the worker could change it during decoding.
        answer: Answer = messages.answer(bytes(memory[start : start + length]))
        if isinstance(answer, Block) and answer.length:
            call.samples = bytearray(memory[start + length : start + length + max(0, answer.length)])
        return answer

    def forget(self, session: int) -> None:
        """Have the worker drop a session's state with the next step."""
        if session in self.sessions:
            self.sessions.discard(session)
            self.forgotten.append(session)

    def take_forgotten(self) -> tuple[int, ...]:
        forgotten, self.forgotten = tuple(self.forgotten), []
        return forgotten

    def check(self, deadlines: Deadlines) -> None:
        """Update its load and cost, and end it if an answer takes too long."""
        now, spent = time.monotonic(), self.child.processor_seconds()
        past = min(1.0, (now - self._checked) / LOAD_SECONDS)
        self.busy += past * (bool(self._calls) - self.busy)
        self.load += past * (min(1.0, (spent - self._spent) / max(1e-3, now - self._checked)) - self.load)
        if (heard := self._heard) and spent > self._spent:  # Else, the CPU time may be unknown.
            self.cost += min(1.0, heard / COST_SECONDS) * ((spent - self._spent) / heard - self.cost)
        self._checked, self._spent, self._heard = now, spent, 0.0
        if not self._calls:
            return
        if self._stopwatch is None:
            self._stopwatch = Stopwatch(self.child, deadlines)
        elif (fault := self._stopwatch.fault()) is not None:
            self.fault = fault
            # Its socket may not report its end: the process that forked it may hold that socket and be stopped.
            self._end()

    def _end(self) -> None:
        if not self.closed:
            killed = self.fault is None and self.child.was_killed()
            self._died(self)
            self.close(partial(WorkerDied, killed, self.fault))

    def close(self, reason: Callable[[], Exception] = StateLost) -> None:
        """End it and fail pending calls with `reason()`. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(reason())
        if self.child.number:
            self._loop.remove_reader(self._line.fileno())
        self.child.close()
        self._line.close()
        self._calls.clear()
        for slot in self._slots:
            slot.release()
        self._memory.close()
