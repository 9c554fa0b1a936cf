"""Simulates a wrong machine clock; Python imports this module at startup if its directory is on PYTHONPATH."""

import os
import time

_AHEAD = float(os.environ["EARSHOT_TEST_CLOCK_AHEAD"])
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + _AHEAD
time.time_ns = lambda: _time_ns() + int(_AHEAD * 1e9)
