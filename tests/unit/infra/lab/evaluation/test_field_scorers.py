"""Our scorers equal each other and those of the field: scikit-learn's, pyannote.metrics' and jiwer's.

These slow imports are local, because every process of a run collects this file.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from infra.lab.evaluation import metrics
from infra.lab.evaluation.diarization import diarization_errors
from infra.lab.evaluation.metrics import Truth, count_clips_found, figures, naming_accuracy
from infra.lab.evaluation.speakers import equal_error
from infra.lab.evaluation.transcription import word_error_rate
from infra.teaching.operating_points import Bools, average_precision, false_events_from
from streams.voice.diarization import DiarizationTurn

pytestmark = pytest.mark.slow

SEEDS = range(8)


def made_up(seed: int) -> tuple[Bools, Truth]:
    """Return detections of 3 tags in 5 recordings of 1 to 9 windows."""
    random = np.random.default_rng(seed)
    recording = np.repeat(np.arange(5), random.integers(1, 10, 5))
    shape = (len(recording), 3)
    allowed = random.random(shape) < 0.4
    heard = random.random(len(recording)) < 0.8
    return random.random(shape) < 0.5, Truth(recording, allowed & (random.random(shape) < 0.7), allowed, heard, 2.0)


def test_figures_without_positives_are_nan() -> None:
    nothing = np.zeros((2, 1), np.bool_)
    figures = metrics.figures(nothing, Truth(np.array([0, 0]), nothing, nothing, np.array([True, True]), 1.0))
    assert math.isnan(figures.clip_recall)
    assert math.isnan(figures.window_recall)
    assert figures.false_windows == figures.false_events_per_minute == 0
    assert math.isnan(average_precision(np.array([1.0]), np.array([False])))


@pytest.mark.parametrize("seed", SEEDS)
def test_false_events_per_point_match_direct_count(seed: int) -> None:
    _, truth = made_up(seed)
    scores = np.random.default_rng(seed).random(len(truth.recording)).round(1)
    points = np.array([0.0, 0.3, 0.5, 0.55, 1.0, 1.1])
    counted = [metrics.false_events(np.repeat((scores >= point)[:, None], 3, axis=1), truth)[1] for point in points]
    assert false_events_from(scores, truth.allowed[:, 1], truth.recording, points).tolist() == counted


@pytest.mark.parametrize("seed", SEEDS)
def test_average_precision_matches_sklearn(seed: int) -> None:
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(seed)
    positive = rng.random(200) < 0.2
    scores = np.round(rng.normal(positive, 1.0), 1)  # rounded, to include ties
    assert positive.any()
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores))


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_error_rate_matches_sklearn(seed: int) -> None:
    from sklearn.metrics import roc_curve

    rng = np.random.default_rng(seed)
    same, different = rng.normal(1.0, 0.7, 300), rng.normal(0.0, 0.7, 3000)
    rate, threshold = equal_error(same.astype(np.float32), different.astype(np.float32))
    labels = np.repeat([1, 0], [len(same), len(different)])
    false, true, _ = roc_curve(labels, np.concatenate((same, different)).astype(np.float32), drop_intermediate=False)
    crossing = int(np.argmin(np.abs((1 - true) - false)))
    assert rate == pytest.approx((1 - true[crossing] + false[crossing]) / 2)
    assert (same < threshold).mean() == pytest.approx((different >= threshold).mean(), abs=2 / len(same))


def turns(rng: np.random.Generator, speakers: int) -> list[DiarizationTurn]:
    """Return six turns of up to 4 s in half a minute; those of a speaker do not overlap, as pyannote requires."""
    starts = np.arange(6) * 5.0 + rng.uniform(0, 1, 6)
    ends = starts + rng.uniform(1, 4, 6)
    others = [DiarizationTurn(float(at), float(at) + 1.5, speakers) for at in starts[:2] + 0.5]
    who = rng.integers(0, speakers, 6).tolist()
    return [
        DiarizationTurn(float(start), float(end), one) for start, end, one in zip(starts, ends, who, strict=True)
    ] + others


def annotation(given: Sequence[DiarizationTurn]) -> Any:
    from pyannote.core import Annotation, Segment

    made = Annotation(uri="conversation")
    for track, turn in enumerate(given):
        made[Segment(turn.start_s, turn.end_s), track] = f"speaker {turn.speaker}"
    return made


@pytest.mark.parametrize("collar", [0.0, 0.25])
@pytest.mark.parametrize("seed", SEEDS)
def test_diarization_error_rate_matches_pyannote(seed: int, collar: float) -> None:
    from pyannote.core import Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate

    rng = np.random.default_rng(seed)
    reference, hypothesis = turns(rng, 3), turns(rng, 4)
    ours = diarization_errors(reference, hypothesis, collar)
    # pyannote's collar is the sum of both sides.
    rate = DiarizationErrorRate(collar=2 * collar)
    theirs = rate(annotation(reference), annotation(hypothesis), uem=Timeline([Segment(0, 60)]), detailed=True)
    assert ours.speech_s == pytest.approx(theirs["total"])
    assert ours.missed_s == pytest.approx(theirs["missed detection"])
    assert ours.false_alarm_s == pytest.approx(theirs["false alarm"])
    assert ours.confusion_s == pytest.approx(theirs["confusion"])
    assert ours.rate == pytest.approx(theirs["diarization error rate"])


@pytest.mark.parametrize("seed", SEEDS)
def test_sound_event_figures_match_sklearn(seed: int) -> None:
    from sklearn.metrics import recall_score

    rng = np.random.default_rng(seed)
    windows, tags, recordings = 120, 5, 12
    recording = np.sort(rng.integers(0, recordings, windows))
    recording = np.unique(recording, return_inverse=True)[1]
    true = rng.random((windows, tags)) < 0.15
    heard = np.ones(windows, np.bool_)
    on = rng.random((windows, tags)) < 0.3
    truth = Truth(recording, true, true, heard, 2.0)
    ours = figures(on, truth)
    assert ours.false_windows == pytest.approx(recall_score(np.ones(windows), (on & ~true).any(axis=1)))
    asked = true.any(axis=1)
    assert ours.window_recall == pytest.approx(recall_score(asked, (on & true).any(axis=1)))
    found, has = count_clips_found(on, truth)
    for tag in range(tags):
        per_clip = [
            (true[recording == one, tag].any(), (on & true)[recording == one, tag].any()) for one in set(recording)
        ]
        clips, hits = zip(*per_clip, strict=True)
        assert has[tag] > 0
        assert found[tag] / has[tag] == pytest.approx(recall_score(clips, hits))


@pytest.mark.parametrize("seed", SEEDS)
def test_naming_accuracy_matches_sklearn(seed: int) -> None:
    from sklearn.metrics import accuracy_score

    rng = np.random.default_rng(seed)
    scores, recording, right = rng.random((60, 4)), np.repeat(np.arange(20), 3), rng.integers(0, 4, 20)
    named = scores.reshape(20, 3, 4).mean(axis=1).argmax(axis=1)
    assert naming_accuracy(scores, recording, right) == pytest.approx(accuracy_score(right, named))


def test_word_error_rate_pools_all_recordings() -> None:
    recordings = [np.full(1, number, np.float32) for number in range(2)]
    heard = ["one too three", "four five"]
    material = list(zip(recordings, ["One, two three", "four"], strict=True))
    assert word_error_rate(lambda samples: heard[int(samples[0])], material) == pytest.approx(2 / 4)
    with pytest.raises(ValueError, match="references with words"):
        word_error_rate(lambda samples: "", [(recordings[0], "...")])
