"""Clocks that tests set by hand."""

import asyncio

import pytest


class HandClock:
    """Seconds since the epoch, as set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def turn_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Advance the clock of the running loop; timers up to that time become due."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + seconds)
