"""Points for a user's recordings."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.evaluation import user_recordings
from infra.lab.evaluation.recordings import Recording, SkippedRecording, Span
from tests.unit.infra.lab.evaluation.engines import DEEP, LOUD, Levels, recording
from topics.errors import BadRequest

BEFORE = Levels(0.9, 0.9)


def given(seed: int = 0) -> list[Recording]:
    """Loud ones of which the model is too shy, and others in which it hears a little."""
    random = np.random.default_rng(seed)
    loud = [recording(f"l{n}", [random.uniform(0.5, 0.8)] * 4, Span(LOUD), label="Loud") for n in range(12)]
    return loud + [recording(f"o{n}", [random.uniform(-0.3, 0.3)] * 4, label="other") for n in range(12)]


def test_what_was_missed_is_found() -> None:
    outcome = user_recordings.calibrate(BEFORE, given(), [SkippedRecording("x", "unknown label")], None)
    before, after, crossed = (line.plain for line in outcome.report.lines)
    assert before.clip_recall == 0.0
    assert after.clip_recall >= crossed.clip_recall > 0.8
    loud, deep = outcome.manifest.tags
    assert 0.3 < loud.point < 0.6
    assert loud.clips == 12
    assert (deep.point, deep.clips) == (0.9, 0)  # nothing is known of it, and nothing false was heard
    assert outcome.manifest.model_id != BEFORE.manifest.model_id
    assert outcome.report.skipped == (SkippedRecording("x", "unknown label"),)


@pytest.mark.parametrize("wanted", [0.5, 2.0, 5.0])
def test_as_many_false_events_as_wanted(wanted: float) -> None:
    outcome = user_recordings.calibrate(Levels(0.1, 0.1), given(), [], wanted)
    assert outcome.report.lines[1].plain.false_events_per_minute <= wanted


def test_more_false_events_find_more() -> None:
    random = np.random.default_rng(3)
    mixed = [recording(f"l{n}", [random.uniform(0.1, 0.8)] * 4, Span(LOUD)) for n in range(20)]
    mixed += [recording(f"o{n}", [random.uniform(0.1, 0.6)] * 4) for n in range(20)]
    found = [user_recordings.calibrate(BEFORE, mixed, [], wanted).report.lines[1].plain for wanted in (0.4, 4.0)]
    assert found[0].clip_recall < found[1].clip_recall


def test_points_that_cannot_be_cross_checked() -> None:
    with pytest.raises(BadRequest):
        user_recordings.calibrate(BEFORE, given()[:1], [], None)
    with pytest.raises(BadRequest, match="no recording has a tag of the model"):
        user_recordings.calibrate(BEFORE, [recording("a", [0.1] * 3), recording("b", [0.1] * 3, Span(DEEP))], [], None)
