"""Operating points: what they are chosen by, and on how much they rest."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from infra.lab.evaluation import calibration, sound
from infra.lab.evaluation.calibration import GRID, CalibrationRule
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.sound import ScoredRecordings
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, Levels, recording
from topics.errors import BadRequest
from topics.scores import STEP

FLOOR = np.array([0.3, 0.3])


def scored(loud: list[float], deep: list[float], others: list[float]) -> ScoredRecordings:
    """Three seconds of each level; levels of `others` have no tag."""
    given: list[Recording] = [recording(f"l{n}", [level] * 3, Span(LOUD)) for n, level in enumerate(loud)]
    given += [recording(f"d{n}", [-level] * 3, Span(DEEP)) for n, level in enumerate(deep)]
    given += [recording(f"o{n}", [level] * 3) for n, level in enumerate(others)]
    return sound.score_recordings(Levels(0.5, 0.5), given)


def test_points_lie_between_what_is_and_what_is_not() -> None:
    found = calibration.calibrate_bundled(
        scored([0.8] * 20, [0.5] * 20, [0.4] * 2 + [-0.1] * 2), CalibrationRule(cost=0.3)
    )
    assert 0.4 < found.points[0] < 0.8
    assert 0.1 < found.points[1] < 0.5
    assert found.clips == (20, 20)


def test_dearer_events_raise_points() -> None:
    known = calibration.gather_evidence(scored([0.3, 0.5, 0.7], [0.5], [0.2, 0.4, 0.6]))
    chosen = [
        calibration.choose_points(known, FLOOR, CalibrationRule(cost=cost)).points[0] for cost in (0.01, 0.3, 10.0)
    ]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_the_fewer_recordings_the_nearer_to_all_tags() -> None:
    points = [
        calibration.calibrate_bundled(scored([0.12] * few, [0.75] * 40, [0.03, -0.03])).points[0] for few in (1, 4, 40)
    ]
    assert points[0] > points[1] > points[2]


def test_a_tag_without_recordings_rests_on_the_others() -> None:
    quiet = calibration.calibrate_bundled(scored([0.6] * 5, [], [0.0] * 5))
    assert quiet.clips == (5, 0)
    assert quiet.points[1] == calibration.BLIND
    loud = calibration.calibrate_bundled(scored([0.6] * 5, [], [-0.5] * 5))
    assert loud.points[1] > 0.5


def test_no_recording_of_any_tag() -> None:
    with pytest.raises(BadRequest, match="no recording has a tag of the model"):
        calibration.calibrate_bundled(scored([], [], [0.2]))


def test_evidence_equals_its_definition() -> None:
    given = scored([0.2, 0.6], [0.4], [0.3, -0.5, 0.1])
    rule = CalibrationRule()
    known = calibration.gather_evidence(given, rule)
    exact = STEP * (given.levels + 0.5)
    for at, level in enumerate(GRID):
        x = [exact[given.truth.recording == number, 0].max() for number in (0, 1)]
        found = sum(1 / (1 + math.exp(-(one - STEP * level) / rule.width)) for one in x)
        assert known.found[0, at] == pytest.approx(found)
        # Every other recording is one event as far as its level reaches: three seconds alike.
        events = [exact[given.truth.recording == number, 0].max() for number in (2, 3, 4, 5)]
        false = sum(1 / (1 + math.exp(-(one - STEP * level) / rule.false_width)) for one in events)
        assert known.false[0, at] == pytest.approx(false, abs=1e-4)


def test_a_calibrated_manifest_is_another_model() -> None:
    manifest = msgspec.structs.replace(Levels(0.5, 0.5).manifest, figures={"clip_recall": 0.5})
    made = calibration.with_points(manifest, calibration.Calibration((0.5, 0.6), (3, 0)))
    assert [(tag.point, tag.clips) for tag in made.tags] == [(0.5, 3), (0.6, 0)]
    assert made.model_id != manifest.model_id
    assert made.figures == {}
