"""A forked process: whether it works or is stuck, and how it ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import structlog

from streams.memory import ended_for_it

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Process states of proc(5) in which it does not resume by itself, or is gone.
STUCK: Final = "SsTtZX"
#: The clock of a process's CPU time, see clock_gettime(2).
_PROCESS_CLOCK: Final = 2

#: The longest time between two checks that counts. In more, the whole service stood still, as in a paused container.
POLL_SECONDS: Final = 1.0

TOO_LONG: Final = "it worked for too long"
IDLE: Final = "it does nothing"


@cache
def tell_unfiltered() -> None:
    """Warn once that processes can make any system call."""
    reason = "seccomp is not available: system calls are not filtered; only resource limits apply"
    log.warning("workers.unfiltered", reason=reason)


class Deadlines(msgspec.Struct, frozen=True):
    """How long a process may work on one thing, in seconds."""

    processor: float
    #: Of doing nothing: it was stopped, or waits for something that never comes.
    idle: float
    #: Elapsed time, whatever it does: the disk or the machine may be slow.
    wall: float

    def within(self, other: Deadlines) -> Deadlines:
        """Return the shorter of both, each."""
        return Deadlines(min(self.processor, other.processor), min(self.idle, other.idle), min(self.wall, other.wall))


class Child:
    """A process with a given id. One thread at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: The machine's count of OOM kills when this process was forked.
        self._ended_for_memory = ended_for_it()
        self._handle: int | None = None
        if hasattr(os, "pidfd_open"):
            # After its end, its id may belong to another process.
            with suppress(OSError):
                self._handle = os.pidfd_open(number)

    def processor_seconds(self) -> float:
        """Return the CPU time it has used; 0 if unknown."""
        return process_seconds(self.number) if self.number else 0.0

    def is_stuck(self) -> bool:
        """Return whether it neither computes nor waits for the disk."""
        status = self._status()
        # Without a status, it is gone, which its socket reports, or this system has no such file.
        return bool(status) and status[0] in STUCK

    def was_killed(self) -> bool:
        """Return whether something outside killed it, but not for its memory, if the system reports how processes end.

        The forking process delays reaping it. If that process was killed too, there is nothing to read.
        """
        if self._ended_for_memory != ended_for_it():
            return False
        status = self._status()
        return int(status[-1]) == signal.SIGKILL if status else Path("/proc/self/stat").exists()

    def _status(self) -> list[str]:
        """Return its fields in proc(5), state first and exit status last; nothing if it is gone."""
        try:
            return Path(f"/proc/{self.number}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return []

    def give_way(self, nice: int) -> None:
        if nice:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.number, os.getpriority(os.PRIO_PROCESS, self.number) + nice)

    def kill(self) -> None:
        with suppress(OSError):  # It has already ended.
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.number, signal.SIGKILL)

    def close(self) -> None:
        """End and release it. Idempotent."""
        if self.number:
            self.kill()
        if self._handle is not None:
            os.close(self._handle)
        self.number, self._handle = 0, None


class Stopwatch:
    """Measures how long a process works on one thing. One thread at a time."""

    def __init__(self, child: Child, deadlines: Deadlines) -> None:
        self._child = child
        self._deadlines = deadlines
        self._began = self._moved = self._checked = time.monotonic()
        self._first = self._spent = child.processor_seconds()

    def fault(self) -> str | None:
        """Return `TOO_LONG` or `IDLE` if it must be ended, else None. Call it repeatedly."""
        now, seconds = time.monotonic(), self._child.processor_seconds()
        pause, self._checked = max(0.0, now - self._checked - POLL_SECONDS), now
        self._began, self._moved = self._began + pause, self._moved + pause
        if seconds - self._first > self._deadlines.processor or now - self._began > self._deadlines.wall:
            return TOO_LONG
        if seconds != self._spent or not self._child.is_stuck():
            self._moved, self._spent = now, seconds
        elif now - self._moved > self._deadlines.idle:
            return IDLE
        return None


def process_seconds(number: int) -> float:
    """Return the CPU time that a process has used; 0 if unknown."""
    try:
        return time.clock_gettime(~number << 3 | _PROCESS_CLOCK)
    except (OSError, AttributeError):
        return 0.0
