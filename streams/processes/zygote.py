"""The process from which all others are forked: it loads libraries and models once and never sees a secret.

Standard input is a socket to the parent; `messages.py` defines the messages. Forked processes share the memory of
libraries and models.
"""

import gc
import mmap
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from streams.processes import messages
from streams.processes.confinement import die_with_parent
from topics.errors import EngineError

#: How long an ended child can be looked at, also by a parent that has little processor time; the most if others end
#: meanwhile. A parent that looks later takes a crash for a kill, and tries what crashes once more.
REAP_SECONDS: Final = 10.0
MOST_REAP_SECONDS: Final = 30.0


class Work(Protocol):
    """What the forked processes do, and what they need for it."""

    def prepare(self) -> None:
        """Load what models need. Idempotent."""

    def load(self, directory: Path) -> None:
        """Load the model in a directory for processes that are forked afterwards.

        Raises:
            EngineError: the model cannot be used.
        """

    def serve(self, line: socket.socket, memory: mmap.mmap, file: int | None) -> None:
        """In a new process: confine it, send the greeting, then work until the parent closes its end."""


class Zygote:
    """Loads models and forks a process per request, until the parent closes its end. One thread at a time.

    A further zygote starts with the same models, and outlives the one that forked it.
    """

    def __init__(self, control: socket.socket, work: Work) -> None:
        self._control = control
        self._work = work
        self._silence = os.open(os.devnull, os.O_RDWR)

    def serve(self) -> None:
        self._greet()
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._control, 1, messages.DESCRIPTORS)
            if not request:
                return
            if request == messages.PREPARE:
                self._work.prepare()
                continue
            if request == messages.LOAD:
                self._answer_load()
                continue
            try:
                # If the fork fails, its socket closes, and so the parent notices.
                with suppress(OSError):
                    if request == messages.FURTHER:
                        if os.fork() == 0:
                            os.dup2(descriptors[0], self._control.fileno())
                            self._greet()
                    elif len(descriptors) == messages.DESCRIPTORS and os.fork() == 0:
                        self._become(descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _greet(self) -> None:
        self._control.sendall(os.getpid().to_bytes(messages.ID_BYTES, "little"))

    def _answer_load(self) -> None:
        length = int.from_bytes(self._control.recv(messages.LENGTH_BYTES, socket.MSG_WAITALL), "little")
        directory = Path(os.fsdecode(self._control.recv(length, socket.MSG_WAITALL)))
        try:
            self._work.load(directory)
            fault = b""
        except EngineError as error:
            fault = str(error).encode()
        except Exception as error:
            fault = f"{directory}: {type(error).__name__}: {error}".encode()
        self._control.sendall(len(fault).to_bytes(messages.LENGTH_BYTES, "little") + fault)

    def _become(self, descriptors: list[int]) -> None:
        try:
            die_with_parent()
            gc.enable()
            # Decoders print messages about damaged files, and standard input is the zygote's socket, not the child's.
            for standard in (0, 1, 2):
                os.dup2(self._silence, standard)
            line, memory, file = descriptors
            given = None if os.path.sameopenfile(memory, file) else file
            self._work.serve(socket.socket(fileno=line), mmap.mmap(memory, 0), given)
        finally:
            os._exit(0)


class Reaper:
    """Reaps ended children late, so that the parent can first see how each ended. One thread at a time."""

    def __init__(self) -> None:
        #: When the first child ended that is not reaped, and the last, monotonic.
        self._first = self._last = 0.0

    def note_end(self, number: int, frame: object) -> None:
        self._last = time.monotonic()
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            self._first = self._last
            signal.setitimer(signal.ITIMER_REAL, REAP_SECONDS)

    def reap(self, number: int, frame: object) -> None:
        due = min(self._last + REAP_SECONDS, self._first + MOST_REAP_SECONDS)
        if (wait := due - time.monotonic()) > 0:
            signal.setitimer(signal.ITIMER_REAL, wait)
            return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def serve(work: Work) -> None:
    """Serve as the child of a `ZygoteProcess`, whose libraries are loaded."""
    reaper = Reaper()
    signal.signal(signal.SIGCHLD, reaper.note_end)
    signal.signal(signal.SIGALRM, reaper.reap)
    gc.freeze()
    with socket.socket(fileno=sys.stdin.fileno()) as control, suppress(ConnectionError):
        Zygote(control, work).serve()
