"""A process that another one has forked for us: does it work, is it stuck, and how did it end?"""

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

#: States of a process, as proc(5) names them, in which it does not come back by itself, or is gone.
STUCK: Final = "SsTtZX"
#: The clock of a process's own time, as clock_gettime(2) knows it.
_PROCESS_CLOCK: Final = 2

TOO_LONG: Final = "it worked for too long"
IDLE: Final = "it does nothing"


@cache
def tell_unfiltered(who: str) -> None:
    """Say, once, that the processes of a kind can make any system call."""
    log.warning(f"{who}.unfiltered", reason="this kernel filters no system calls; limits of resources hold")


class Deadlines(msgspec.Struct, frozen=True):
    """How long a process may work on one thing, in seconds."""

    processor: float
    #: Of doing nothing at all: it was stopped, or waits for what never comes.
    idle: float
    #: Whatever it does: the disk or the machine may be slow.
    wall: float


class Child:
    """A process, by its number. One thread at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Machines end what takes too much memory: how often this one had done so.
        self._ended_for_memory = ended_for_it()
        self._handle: int | None = None
        if hasattr(os, "pidfd_open"):
            # Its number may be another process's after its end.
            with suppress(OSError):
                self._handle = os.pidfd_open(number)

    def processor_seconds(self) -> float:
        """Return the processor time that it has used; 0 where that is not known."""
        return process_seconds(self.number)

    def is_stuck(self) -> bool:
        """Return whether it neither works nor waits for the disk."""
        status = self._status()
        # Where nothing is known it is gone, which its socket tells, or this system does not tell.
        return bool(status) and status[0] in STUCK

    def was_killed(self) -> bool:
        """Return whether it was ended from outside and not for its memory, where the system tells how processes end.

        The one that forked it keeps what is left of it for a moment. Nothing is left where that one was killed too.
        """
        if self._ended_for_memory != ended_for_it():
            return False
        status = self._status()
        return int(status[-1]) == signal.SIGKILL if status else Path("/proc/self/stat").exists()

    def _status(self) -> list[str]:
        """Return what the system says of it: its state first, how it has ended last; nothing if it is gone."""
        try:
            return Path(f"/proc/{self.number}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return []

    def give_way(self, nice: int) -> None:
        if nice:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.number, os.getpriority(os.PRIO_PROCESS, self.number) + nice)

    def kill(self) -> None:
        """End it, whatever it does."""
        with suppress(OSError):  # It has ended.
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.number, signal.SIGKILL)

    def close(self) -> None:
        """End it, and let go of it; allowed twice."""
        if self.number:
            self.kill()
        if self._handle is not None:
            os.close(self._handle)
        self.number, self._handle = 0, None


class Watch:
    """How long a process has been at one thing. One thread at a time."""

    def __init__(self, child: Child, deadlines: Deadlines) -> None:
        """Begin now."""
        self._child = child
        self._deadlines = deadlines
        self._began = self._moved = time.monotonic()
        self._first = self._spent = child.processor_seconds()

    def fault(self) -> str | None:
        """Return `TOO_LONG` or `IDLE` if it is to be ended, None while it may go on. Called now and then."""
        now, seconds = time.monotonic(), self._child.processor_seconds()
        if seconds - self._first > self._deadlines.processor or now - self._began > self._deadlines.wall:
            return TOO_LONG
        if seconds != self._spent or not self._child.is_stuck():
            self._moved, self._spent = now, seconds
        elif now - self._moved > self._deadlines.idle:
            return IDLE
        return None


def process_seconds(number: int) -> float:
    """Return the processor time that a process has used; 0 where that is not known."""
    try:
        return time.clock_gettime(~number << 3 | _PROCESS_CLOCK)
    except (OSError, AttributeError):
        return 0.0
