"""Capture times: a clock that does not jump, and samples that came late, early, in bursts, or too fast."""

import random
from itertools import pairwise

import pytest

from infra.agent.clock import DRIFT, WINDOW, Clock, Timeline


class Machine:
    """A machine's clocks."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.steady = 50.0

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_small_differences_are_followed_slowly() -> None:
    machine = Machine()
    clock = Clock(lambda: machine.wall, lambda: machine.steady)
    machine.wall += 0.2
    errors = []
    for _ in range(300):
        machine.sleep(1)
        errors.append(machine.wall - clock.now())
    assert errors[0] == pytest.approx(0.199)
    assert all(0.0009 < before - after < 0.0011 for before, after in pairwise(errors[:100]))
    assert errors[-1] == pytest.approx(0.0, abs=1e-6)


def test_time_of_a_machine_that_learned_it_is_taken_at_once() -> None:
    machine = Machine()
    clock = Clock(lambda: machine.wall, lambda: machine.steady)
    for difference in (3600, -1800):
        machine.wall += difference
        assert clock.now() == pytest.approx(machine.wall)


def heard(line: Timeline, seconds: float, at: float = 0.0, speed: float = 1.0, jitter: float = 0.0) -> float:
    """Let packets of 20 ms come for some seconds; return the time of the last one."""
    random.seed(1)
    for number in range(int(seconds / 0.02)):
        line.arrived(at + (number + 1) * 0.02 / speed + random.random() * jitter, 0.02)
    return at + seconds / speed


def test_packets_that_come_late_do_not_move_the_time() -> None:
    line = Timeline()
    heard(line, 60, at=100.0, jitter=0.5)
    assert line.time_of(0.0) == pytest.approx(100.0, abs=0.02)
    assert line.drift(160.0) == 0.0


def test_burst_at_the_beginning_was_captured_before_it_came() -> None:
    line = Timeline()
    for _ in range(100):
        line.arrived(100.0, 0.02)
    assert not line.settled(100.0)
    heard(line, 10, at=100.0)
    assert line.settled(101.0)
    assert line.time_of(0.0) == pytest.approx(98.0, abs=0.001)
    assert line.ahead == pytest.approx(1.98)


@pytest.mark.parametrize("speed", [0.999, 1.001, 1.01])
def test_drift_is_corrected(speed: float) -> None:
    line = Timeline()
    end = heard(line, 50, at=100.0, speed=speed)
    assert line.time_of(50.0) == pytest.approx(end, abs=0.045)
    assert abs(line.drift(end)) < DRIFT


@pytest.mark.parametrize("speed", [0.95, 1.05])
def test_a_source_far_from_the_clock_drifts(speed: float) -> None:
    line = Timeline()
    assert abs(line.drift(heard(line, 50, at=100.0, speed=speed))) > DRIFT


def test_lost_audio_moves_what_follows() -> None:
    line = Timeline()
    heard(line, 10, at=100.0)
    heard(line, 10, at=113.0)
    assert line.time_of(20.0) == pytest.approx(123.0, abs=0.02)
    assert line.drift(123.0) == 0.0


@pytest.mark.parametrize(("size", "pace"), [(0.064, float("inf")), (0.5, float("inf")), (0.064, 2.0)])
def test_audio_that_waits_is_no_drift(size: float, pace: float) -> None:
    """A server sends nothing for 5 s, from anywhere on, then all that waited: at once, or at twice the pace."""
    for first in range(int(WINDOW / size) + 1):
        line, stalled = Timeline(), 110.0 + first * size
        for number in range(1, int(40 / size)):
            due = 100.0 + number * size
            at = due if due < stalled else max(due, stalled + 5.0 + (due - stalled) / pace)
            line.arrived(at, size)
            assert abs(line.drift(at)) < DRIFT
            assert abs(line.time_of(0.0) - 100.0) < 0.021 or pace == 2.0
        assert abs(line.time_of(0.0) - 100.0) < 0.021


def test_gap_of_time_stamps_counts_if_the_packet_came_as_late() -> None:
    line = Timeline()
    heard(line, 10, at=100.0)
    assert not line.skipped(110.02, 3.0)
    assert line.skipped(113.02, 3.0)
    assert not line.skipped(113.02, 0.05)
    assert line.time_of(10.0) == pytest.approx(113.0, abs=0.02)
