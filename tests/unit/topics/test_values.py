"""Values and their meaning: windows, times, stored scores, languages."""

import math

import pytest

from topics import languages, scores
from topics.geometry import SENSE, SESSIONS, Geometry
from topics.times import clock, iso_time

SENSITIVITIES = range(-2, 3)


@pytest.mark.parametrize(
    ("geometry", "bounds", "patches"),
    [
        (SESSIONS, [(0, 1), (0.5, 1.5), (1, 2)], (1, 2)),
        (SENSE, [(0, 2), (1, 3), (2, 4)], (2, 1)),
        (Geometry(3000, 500), [(0, 3), (0.5, 3.5), (1, 4)], (3, 2)),
    ],
    ids=["sessions", "sense", "others"],
)
def test_window_bounds_and_patches_follow_geometry(
    geometry: Geometry, bounds: list[tuple[float, float]], patches: tuple[int, int]
) -> None:
    found = [geometry.bounds(window) for window in range(3)]
    assert repr(found) == repr(bounds), "whole seconds are integers"
    assert (geometry.patches, geometry.stride) == patches


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
def test_clock_formats_milliseconds(ms: int, hours: bool, shown: str) -> None:
    assert clock(ms, hours) == shown


def test_iso_time_formats_utc() -> None:
    assert iso_time(1_767_323_045_678) == "2026-01-02T03:04:05.678Z"
    assert iso_time(1_767_323_045_000) == "2026-01-02T03:04:05.000Z"


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_tag_is_reported_from_probability_one_half(sensitivity: int) -> None:
    shown = [scores.probability(stored, sensitivity) for stored in range(256)]
    assert shown == sorted(shown)
    assert 0 <= shown[0] <= shown[-1] <= 1
    assert [one >= 0.5 for one in shown] == [stored >= scores.threshold(sensitivity) for stored in range(256)]


def test_probability_is_taken_at_step_midpoint() -> None:
    assert scores.probability(128) == round(1 / (1 + math.exp(-0.035)), 4) == 0.5087
    assert scores.probability(127) == 0.4913
    assert scores.probability(138, 1) == scores.probability(128)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *[("en", "en"), ("pt-BR", "pt"), ("Korean", "ko"), ("haitian creole", "ht"), ("iw-IL", "he"), (" FR ", "fr")],
        *[("xx", None), ("", None), ("klingon", None), ("e" * 10_000, None)],
    ],
)
def test_language_text_maps_to_code(text: str, code: str | None) -> None:
    assert languages.code(text) == code


def test_language_codes_and_names_map_both_ways() -> None:
    assert len(languages.NAMES) == 100
    for code, name in languages.NAMES.items():
        assert (languages.code(code), languages.code(name)) == (code, code)
        assert languages.name(code) == languages.name(name.lower()) == name
    assert languages.name("klingon") == "Klingon"
