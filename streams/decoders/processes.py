"""The zygote and the decoders as their parent sees them: started, asked, watched and killed."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import numpy as np
import structlog

from streams.decoders import messages
from topics.errors import EngineError, Unavailable

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Variables of the environment by which libraries are found.
ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH")
#: Bytes that glibc's heap keeps for the next chunk: otherwise it gives them back to the kernel after each, and takes
#: them anew page by page. Other C libraries do not read these.
KEPT_MEMORY: Final = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(4 << 20))
COMMAND: Final = (sys.executable, "-m", "streams.workers.zygote")
#: Loading the libraries takes half a second, more on a busy machine.
START_SECONDS: Final = 30.0
#: Forking a decoder takes some milliseconds.
FORK_SECONDS: Final = 5.0
#: States of a process, as proc(5) names them, in which it does not come back by itself, or is gone.
_STUCK: Final = "SsTtZX"
#: The clock of a process's own time, as clock_gettime(2) knows it.
_PROCESS_CLOCK: Final = 2
_TIMEVAL: Final = struct.Struct("@ll")


def bare_environment() -> dict[str, str]:
    """Return the environment of a child that decodes what strangers send: no secret of ours is within its reach."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)}


class Deadlines(msgspec.Struct, frozen=True):
    """How long a decoder may take for one block of samples, which is some milliseconds' work: seconds."""

    processor: float = 1.0
    #: Of doing nothing at all: it was stopped, or waits for what never comes.
    idle: float = 1.0
    #: Whatever it does: the disk or the machine may be slow.
    wall: float = 30.0


class DecoderDied(Exception):
    """A decoder ended without an answer, or does nothing."""


class LimitBroken(Exception):
    """A decoder took more time than it may."""


class DecoderProcess:
    """One decoder, and the socket and memory that are shared with it. One thread at a time."""

    def __init__(self, line: socket.socket, memory: int, inbox: int | None, deadlines: Deadlines) -> None:
        """Take over a socket and an inbox; the descriptor of the memory, which is mapped here, stays the caller's."""
        self._line = line
        self._inbox = inbox
        self._deadlines = deadlines
        self._look_seconds = min(0.25, deadlines.idle / 2, deadlines.processor / 2)
        # The kernel's own time limit of a read, for which Python makes no other system call.
        micro = int(1e6 * self._look_seconds)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(micro // 10**6, micro % 10**6))
        self._memory = mmap.mmap(memory, messages.MEMORY_BYTES)
        self.slots = np.frombuffer(self._memory, np.float32).reshape(messages.SLOTS, messages.SLOT_SAMPLES)
        #: Requests so far.
        self.requests = 0
        self.process = 0
        self.filtered = False
        self._handle: int | None = None

    def greet(self) -> None:
        """Wait until it is there.

        Raises:
            DecoderDied: it was not forked.
            LimitBroken: it takes too long.
        """
        until = time.monotonic() + FORK_SECONDS
        while True:
            try:
                data = self._line.recv(messages.MESSAGE_BYTES)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LimitBroken from None
        if not data:
            raise DecoderDied
        greeting = messages.hello(data)
        self.process, self.filtered = greeting.process, greeting.filtered
        if hasattr(os, "pidfd_open"):
            # Its number may be another process's after its end.
            with suppress(OSError):
                self._handle = os.pidfd_open(self.process)

    def give_way(self, nice: int) -> None:
        if nice and self.process:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.process, os.getpriority(os.PRIO_PROCESS, self.process) + nice)

    def put(self, data: bytes | memoryview) -> None:
        """Write a file to the inbox; no request may be in work."""
        assert self._inbox is not None
        os.pwrite(self._inbox, data, 0)
        os.ftruncate(self._inbox, len(data))

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            DecoderDied: it has ended.
        """
        try:
            self._line.send(message)
        except OSError:
            raise DecoderDied from None

    def receive(self) -> messages.Reply:
        """Wait for the next reply.

        Raises:
            DecoderDied: it ended, sent what is no reply, or does nothing.
            LimitBroken: it took longer than it may.
        """
        try:
            # Nearly always it is there in time.
            return self._read()
        except BlockingIOError:
            return self._wait()

    def _wait(self) -> messages.Reply:
        began = moved = time.monotonic() - self._look_seconds
        spent = first = self.processor_seconds()
        while True:
            try:
                return self._read()
            except BlockingIOError:
                now, seconds = time.monotonic(), self.processor_seconds()
            if seconds - first > self._deadlines.processor or now - began > self._deadlines.wall:
                raise LimitBroken
            if seconds != spent or not self._is_stuck():
                moved, spent = now, seconds
            elif now - moved > self._deadlines.idle:
                raise DecoderDied

    def _read(self) -> messages.Reply:
        try:
            return messages.reply(self._line.recv(messages.MESSAGE_BYTES))
        except (ConnectionError, msgspec.MsgspecError):
            # No bytes are no reply either.
            raise DecoderDied from None

    def processor_seconds(self) -> float:
        """Return the processor time that it has used; 0 where that is not known."""
        return process_seconds(self.process)

    def _is_stuck(self) -> bool:
        """Return whether it neither works nor waits for the disk."""
        try:
            status = Path(f"/proc/{self.process}/stat").read_text()
        except OSError:
            return False  # not known here, or it is gone, which its socket tells
        return status.rpartition(") ")[2][:1] in _STUCK

    def close(self) -> None:
        """End it, whatever it does."""
        with suppress(OSError):  # it has ended
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self.process:
                os.kill(self.process, signal.SIGKILL)
        if self._handle is not None:
            os.close(self._handle)
        if self._inbox is not None:
            os.close(self._inbox)
        self._handle, self._inbox, self.process = None, None, 0
        self._line.close()
        del self.slots
        self._memory.close()


def process_seconds(process: int) -> float:
    """Return the processor time that a process has used; 0 where that is not known."""
    try:
        return time.clock_gettime(~process << 3 | _PROCESS_CLOCK)
    except (OSError, AttributeError):
        return 0.0


def _shared_file(stack: ExitStack, size: int) -> int:
    """Return the descriptor of a file in memory, which `stack` closes.

    Raises:
        OSError: no more files can be opened.
    """
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("samples", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            memory = os.dup(file.fileno())
    stack.callback(os.close, memory)
    os.ftruncate(memory, size)
    return memory


class ZygoteProcess:
    """The child process that decoders and workers are forked from, and the socket over which it takes requests.

    One thread at a time.
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Start it.

        Raises:
            Unavailable: it died, or does not start in time.
        """
        self._control, theirs = socket.socketpair()
        environment = bare_environment() | KEPT_MEMORY | {"OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                # A signal to the service's group, as from a terminal, is for the service, which ends the zygote.
                start_new_session=True,
            )
        self._control.settimeout(START_SECONDS)
        with suppress(OSError):
            if self._control.recv(len(messages.READY)):
                self._control.settimeout(None)
                return
        self.stop()
        raise Unavailable("the process that decoders come from does not start")

    def fork(self, deadlines: Deadlines, recording: int | None = None) -> DecoderProcess:
        """Return a new decoder for a recording, given as a descriptor; without one it has an inbox.

        Raises:
            DecoderDied: there is none; this process has ended, or the machine gives no more.
            LimitBroken: this process does not answer.
            OSError: this process can open no more files.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            inbox = None if recording is not None else _shared_file(ours, messages.BEGINNING_BYTES)
            memory = _shared_file(theirs, messages.MEMORY_BYTES)
            line, their_line = socket.socketpair(type=socket.SOCK_SEQPACKET)
            theirs.enter_context(their_line)
            ours.pop_all()
            decoder = DecoderProcess(line, memory, inbox, deadlines)
            ours.callback(decoder.close)
            try:
                request, file = (messages.FORK, recording) if inbox is None else (messages.FORK_INBOX, inbox)
                socket.send_fds(self._control, [request], [their_line.fileno(), memory, file or 0])
            except OSError:
                raise DecoderDied from None
            theirs.close()
            decoder.greet()
            ours.pop_all()
        return decoder

    def fork_worker(self, size: int) -> tuple[socket.socket, int]:
        """Return the socket of a new worker, and the descriptor of a memory of `size` bytes that it shares.

        Raises:
            OSError: this process can open no more files, or the zygote has ended.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            memory = _shared_file(ours, size)
            line, their_line = socket.socketpair(type=socket.SOCK_SEQPACKET)
            ours.callback(line.close)
            theirs.enter_context(their_line)
            socket.send_fds(self._control, [messages.FORK_WORKER], [their_line.fileno(), memory, memory])
            ours.pop_all()
        return line, memory

    def prepare(self) -> None:
        """Let it load what models need, while nothing else is asked of it."""
        self._control.sendall(messages.PREPARE)

    def load(self, directory: Path) -> None:
        """Load the model in a directory; those that are forked from then on have it.

        Raises:
            EngineError: it cannot be used.
            OSError: the zygote has ended.
        """
        name = os.fsencode(directory)
        self._control.sendall(messages.LOAD + len(name).to_bytes(messages.LENGTH_BYTES, "little") + name)
        length = self._control.recv(messages.LENGTH_BYTES, socket.MSG_WAITALL)
        if len(length) < messages.LENGTH_BYTES:
            raise BrokenPipeError("the process that workers come from has ended")
        if size := int.from_bytes(length, "little"):
            raise EngineError(self._control.recv(size, socket.MSG_WAITALL).decode())

    @property
    def alive(self) -> bool:
        """True until it ends; its socket closes with it."""
        try:
            return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def process(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End it, and with it the decoders that are left."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Zygote:
    """The zygote of this process, started when it is needed, and again when it has ended. Any thread."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Start nothing yet; `command` starts the process."""
        self._command = command
        self._lock = threading.Lock()
        self._process: ZygoteProcess | None = None
        #: The models that it has, or is to have when it starts again.
        self._models: dict[Path, None] = {}

    def start(self) -> None:
        """Start it now, not with the first use; allowed twice.

        Raises:
            Unavailable: it does not start.
        """
        with self._lock:
            self._running()

    def start_beside(self) -> None:
        """Start it in a thread, for models; where it does not start, its first use says so."""

        def start() -> None:
            with suppress(Unavailable, OSError), self._lock:
                self._running().prepare()

        threading.Thread(target=start, name="zygote", daemon=True).start()

    def stop(self) -> None:
        """End it, and with it all that was forked; a later use starts it again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.stop()

    def load(self, directory: Path) -> None:
        """Load the model in a directory, if it has not; blocks.

        Raises:
            EngineError: it cannot be used.
            Unavailable: there is no zygote now.
        """
        with self._lock:
            if directory not in self._models or self._process is None:
                self._attempt(lambda process: process.load(directory))
                self._models[directory] = None

    @property
    def process(self) -> int:
        """The id of the process, 0 while there is none."""
        return 0 if self._process is None else self._process.process

    def fork_worker(self, size: int) -> tuple[socket.socket, int]:
        """Return the socket and the memory of a new worker.

        Raises:
            Unavailable: there is none now.
        """
        with self._lock:
            return self._attempt(lambda process: process.fork_worker(size))

    def fork(self, deadlines: Deadlines, recording: int | None) -> DecoderProcess:
        """Return a new decoder.

        Raises:
            Unavailable: there is none now.
        """
        with self._lock:
            return self._attempt(lambda process: process.fork(deadlines, recording))

    def _attempt(self, ask: Callable[[ZygoteProcess], T]) -> T:
        """Ask the zygote, and a new one if it has ended or does not answer."""
        for _ in range(2):
            process = self._running()
            try:
                return ask(process)
            except (DecoderDied, LimitBroken, OSError) as fault:
                if process.alive and not isinstance(fault, LimitBroken):
                    break  # The machine gives no process or no file: others would lose theirs for nothing.
                log.warning("decoders.restarted", reason="the process that decoders come from ended or does not answer")
                self._process = None
                process.stop()
        raise Unavailable("no decoder can be started")

    def _running(self) -> ZygoteProcess:
        if self._process is None:
            self._process = ZygoteProcess(self._command)
            for directory in self._models:
                with suppress(EngineError):  # It was there before: what needs it says so.
                    self._process.load(directory)
        return self._process
