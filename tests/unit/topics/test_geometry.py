"""Window geometry."""

from __future__ import annotations

from topics.geometry import SENSE, SESSIONS, Geometry, seconds


def test_windows_of_the_session_interface_grow_by_half_a_second() -> None:
    assert [SESSIONS.bounds(window) for window in range(3)] == [(0, 1), (0.5, 1.5), (1, 2)]


def test_windows_of_the_sense_interface_grow_by_a_second() -> None:
    assert [SENSE.bounds(window) for window in range(3)] == [(0, 2), (1, 3), (2, 4)]


def test_patches_of_a_window_lie_a_second_apart() -> None:
    assert (SESSIONS.patches, SESSIONS.stride) == (1, 2)
    assert (SENSE.patches, SENSE.stride) == (2, 1)
    assert (Geometry(3000, 500).patches, Geometry(3000, 500).stride) == (3, 2)


def test_whole_seconds_are_integers() -> None:
    assert isinstance(seconds(2000), int)
    assert seconds(2500) == 2.5
