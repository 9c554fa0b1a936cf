"""The clock of the log: the machine's, whose jumps it notices and reports.

The log's time follows the clock, because deadlines and lists must be right again as soon as the clock is. So it may go
back, but by more than `STEP_MS` only: after smaller steps it stands still until the clock has caught up.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from topics.service_time import MINUTE_MS
from topics.times import HOUR_MS, iso_time

log: Final = logging.getLogger(__name__)

#: A clock that changes by at most this much (ms) has not jumped.
STEP_MS: Final = MINUTE_MS


def boot_time() -> float:
    """Return seconds since some moment, including those in which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LogClock:
    """Tells the log's time. Loop only, except `right_since_ms`."""

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float] = boot_time) -> None:
        """`clock` returns seconds since the epoch; `steady` never jumps."""
        self._clock = clock
        self._steady = steady
        self._last = int(clock() * 1000), steady()
        #: The time since which the clock has not jumped.
        self.right_since_ms = self._last[0]

    def now_ms(self) -> int:
        """Return the time, and report a jump since the last call."""
        now, steady = int(self._clock() * 1000), self._steady()
        before, at = self._last
        self._last = now, steady
        jump = now - before - (steady - at) * 1000
        if abs(jump) > STEP_MS:
            self.right_since_ms = now
            log.warning(
                "the clock jumped %s by %.0f s to %s: new records have this time, and deadlines do not count the jump",
                "ahead" if jump > 0 else "back",
                abs(jump) / 1000,
                iso_time(now),
            )
        return now

    def compare(self, newest_ms: int) -> None:
        """Report, at the start of a log, how long before or after its newest record this is."""
        if not newest_ms:
            return
        away = self._last[0] - newest_ms
        if away < -STEP_MS:
            log.warning(
                "the clock is %.0f s behind the log's newest record (%s): it was ahead then, or is behind now",
                -away / 1000,
                iso_time(newest_ms),
            )
        elif away > HOUR_MS:
            log.info(
                "the log's newest record is %.0f s old (%s): deadlines do not count absences",
                away / 1000,
                iso_time(newest_ms),
            )


def stamp(now_ms: int, last_ms: int) -> int:
    """Return the time of a partition's next record; `last_ms` is that of its last one."""
    return last_ms if now_ms < last_ms <= now_ms + STEP_MS else now_ms
