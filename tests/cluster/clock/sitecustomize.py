"""Python reads this at its start, where its directory is on PYTHONPATH: the clock of a machine that goes wrong."""

import os
import time

_AHEAD = float(os.environ["EARSHOT_TEST_CLOCK_AHEAD"])
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + _AHEAD
time.time_ns = lambda: _time_ns() + int(_AHEAD * 1e9)
