"""Simulates a wrong machine clock; Python imports this module at startup if its directory is on PYTHONPATH."""

import os
import time

_AHEAD = float(os.environ["EARSHOT_TEST_CLOCK_AHEAD"])
#: Seconds between steps to and fro, 0 for a clock that is ahead all the time.
_STEP = float(os.environ.get("EARSHOT_TEST_CLOCK_STEP", "0"))
_time, _time_ns, _monotonic = time.time, time.time_ns, time.monotonic


def _ahead() -> float:
    return _AHEAD if not _STEP or _monotonic() // _STEP % 2 else 0.0


time.time = lambda: _time() + _ahead()
time.time_ns = lambda: _time_ns() + int(_ahead() * 1e9)
