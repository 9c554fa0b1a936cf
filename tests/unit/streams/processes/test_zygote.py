"""The zygote's own signals."""

import os
import signal
import time

import pytest

from streams.processes.zygote import MOST_REAP_SECONDS, REAP_SECONDS, Reaper
from tests.unit.streams.clocks import HandClock

STEP = REAP_SECONDS / 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    clock = HandClock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.mark.parametrize(
    ("ends", "reaped"),
    [
        ([0], REAP_SECONDS),
        ([0, 3], 3 * STEP + REAP_SECONDS),
        (range(1000), MOST_REAP_SECONDS),
    ],
    ids=["one", "another before the first is reaped", "endlessly many"],
)
def test_ended_child_can_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, clock: HandClock, ends: list[int], reaped: float
) -> None:
    """It was reaped with the one before, at once in the worst case, and then a crash was taken for a kill."""
    due, waits = 0.0, list[float]()

    def set_timer(which: int, seconds: float) -> None:
        nonlocal due
        due = clock.now + seconds

    def wait(*_: object) -> tuple[int, int]:
        waits.append(clock.now)
        return 0, 0

    monkeypatch.setattr(signal, "setitimer", set_timer)
    monkeypatch.setattr(signal, "getitimer", lambda which: (due, 0.0))
    monkeypatch.setattr(os, "waitpid", wait)
    began, reaper = clock.now, Reaper()
    for number in range(1000):
        clock.now = began + number * STEP
        if due and clock.now >= due:
            due = 0.0
            reaper.reap(signal.SIGALRM, None)
        if waits:
            break
        if number in ends:
            reaper.note_end(signal.SIGCHLD, None)
    assert waits == [pytest.approx(began + reaped)]
