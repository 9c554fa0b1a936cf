"""When audio was captured: a clock that follows the time of day, and the line from samples to the monotonic clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

import structlog

log: Final = structlog.stdlib.get_logger("infra.agent")

#: The most by which the clock is sped up or slowed down to follow the machine's own, seconds a second.
SLEW: Final = 0.001
#: A machine without a battery learns the time after its start: a larger difference is taken at once, seconds.
STEP: Final = 1.0
#: A difference that is not corrected, seconds.
TOLERANCE: Final = 0.020
#: The shortest time in which a packet came without delay, seconds.
WINDOW: Final = 2.0
#: A source whose corrections in this time have this sum drifts, seconds.
DRIFT_TIME: Final = 60.0
DRIFT: Final = 2.0
#: Missing audio that is dated at once, seconds; a camera that is busy may send a packet late by this.
GAP: Final = 0.1
#: Time that a burst at the beginning of a connection takes, seconds.
BURST: Final = 0.5


class Clock:
    """The time of day, which follows the machine's clock slowly. Any thread."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._lock = Lock()
        self._at = steady()
        self._offset = wall() - self._at

    def now(self) -> float:
        """Return the Unix time, seconds."""
        return self._steady() + self.offset()

    def offset(self) -> float:
        """Return the Unix time at which the monotonic clock was 0, seconds."""
        with self._lock:
            at = self._steady()
            late, most = self._wall() - at - self._offset, SLEW * (at - self._at)
            self._at = at
            if abs(late) > STEP:
                log.warning("clock stepped", seconds=round(late, 3))
            else:
                late = max(-most, min(most, late))
            self._offset += late
            return self._offset


class Timeline:
    """The capture times of one connection's samples, from when its packets came, by the monotonic clock. One thread.

    A packet is never early, and in each two seconds one comes without delay: the least delay is the drift. What the
    source had stored before the connection comes in a burst; the last packet of the burst tells when its first sample
    was captured.
    """

    def __init__(self) -> None:
        #: Time of the first sample, corrected by all drift since.
        self._origin = 0.0
        self._seconds = 0.0
        self._least = float("inf")
        self._began: float | None = None
        self._window = 0.0
        self._corrections: deque[tuple[float, float]] = deque()
        #: Seconds by which more audio came than time passed, without what came at the beginning.
        self.ahead = 0.0

    def skipped(self, at: float, gap: float) -> bool:
        """Return whether so many seconds of audio are missing before a packet that came at a time.

        Time stamps tell so, and some cameras' jump without a cause: the packet must have come later by as much.
        """
        missing = gap > GAP and at - self._seconds - self._origin > gap - GAP
        self._origin += gap * missing
        return missing

    def arrived(self, at: float, seconds: float) -> None:
        """Note that a packet with so many seconds of audio came at a time."""
        self._seconds += seconds
        if self._began is None:
            self._began = at
            self._origin = at - seconds
        delay = at - self._seconds - self._origin
        if self._least == float("inf"):  # Each two seconds begin with a packet: what waited then comes within them.
            self._window = at
        self._least = min(self._least, delay)
        settling = at - self._began < WINDOW
        if delay < (0.0 if settling else -TOLERANCE):
            self._correct(at, delay, settling)
        elif at - self._window >= WINDOW:
            if self._least > TOLERANCE:
                self._correct(at, self._least, settling)
            self._least = float("inf")

    def _correct(self, at: float, seconds: float, settling: bool) -> None:
        self._origin += seconds
        self._least = float("inf")
        self.ahead = max(0.0, self.ahead - seconds)
        if not settling:
            if self._corrections and self._corrections[-1][1] * seconds < 0.0:  # What was late comes after all.
                seconds += self._corrections.pop()[1]
            self._corrections.append((at, seconds))

    def drift(self, at: float) -> float:
        """Return the sum of the corrections of the last minute, seconds; 0 if they were too few."""
        while self._corrections and at - self._corrections[0][0] > DRIFT_TIME:
            self._corrections.popleft()
        return sum(seconds for _, seconds in self._corrections) if len(self._corrections) > 4 else 0.0

    def time_of(self, position: float) -> float:
        """Return the time of a position, seconds of the connection's audio."""
        return self._origin + position

    @property
    def early(self) -> bool:
        """Whether nearly all of the audio came early, as a recording does."""
        return self.ahead > 0.8 * self._seconds

    def settled(self, at: float) -> bool:
        """Return whether a burst at the beginning has come by now."""
        return self._began is not None and at - self._began >= BURST
