"""Times as text."""

from __future__ import annotations

import pytest

from topics.times import clock, iso_time


@pytest.mark.parametrize(
    ("ms", "hours", "shown"),
    [
        (0, False, "00:00.00"),
        (4609, False, "00:04.60"),
        (3_599_999, False, "59:59.99"),
        (3_600_000, False, "01:00:00.00"),
        (4600, True, "00:00:04.60"),
        (360_000_000, True, "100:00:00.00"),
    ],
)
def test_times_on_the_clock(ms: int, hours: bool, shown: str) -> None:
    assert clock(ms, hours) == shown


def test_a_log_time_in_utc() -> None:
    assert iso_time(1_767_323_045_678) == "2026-01-02T03:04:05.678Z"
    assert iso_time(1_767_323_045_000) == "2026-01-02T03:04:05.000Z"
