"""Operating points: the scores from which tags are reported, chosen to balance hits and false events.

The point of a tag is the score t with the largest U(t) = F(t) - c N(t). F is the expected share of its recordings that
are found, N the expected number of its false events a minute, and c (`CalibrationRule.cost`) the price of one false
event a minute. Both are estimated from few recordings, so they are smoothed, with a prior from all tags. With m
recordings that have the tag, x_i the highest score of each, scores and t as logits, and s the logistic function,

    F(t) = (sum_i s((x_i - t) / width) + prior F_all(t)) / (m + prior)

where F_all is the mean of the unsmoothed shares over the tags that have recordings, and width and prior are fields of
`CalibrationRule`. The fewer recordings a tag has, the closer its point is to that of a tag without any. N is smoothed
in the same way, with the mean over all tags as its prior.
"""

from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.metrics import Truth, count_clips_found
from infra.lab.evaluation.sound import Levels, ScoredRecordings, point_at
from infra.teaching.operating_points import Doubles, Indices
from streams.models.manifest import Manifest
from topics.errors import BadRequest
from topics.scores import STEP

#: Levels that can become points: scores of 0.05 to 0.8.
GRID: Final = np.arange(-42, 21)
#: Scores below this level are too far from any point to count in N.
FAR: Final = int(GRID[0]) - 40


class CalibrationRule(msgspec.Struct, frozen=True):
    """Parameters of the choice of points."""

    cost: float = 2.5
    #: Width of the smoothing of recordings that have a tag, and of false events, in logits.
    width: float = 0.7
    false_width: float = 0.3
    #: Weight of the priors: of F in recordings of a tag, of N in tags.
    prior: float = 2.0
    false_prior: float = 0.5


class Calibration(msgspec.Struct, frozen=True):
    """The operating point of each tag, and the number of its recordings that support it."""

    points: tuple[float, ...]
    clips: tuple[int, ...]


DEFAULT: Final = CalibrationRule()
#: The lowest point of a bundled model's tag without recordings.
BLIND: Final = point_at(-12)


class Evidence(msgspec.Struct, frozen=True):
    """Counts of hits and false events of each tag at each level of `GRID`."""

    #: Recordings with the tag: intp[tags].
    clips: Indices
    #: Expected number of these recordings that are found, and of false events: float64[tags, levels].
    found: Doubles
    false: Doubles
    minutes: float


def gather_evidence(scored: ScoredRecordings) -> Evidence:
    levels, truth = scored.levels, scored.truth
    tags = range(levels.shape[1])
    return Evidence(
        clips=count_clips_found(truth.true, truth)[1],
        found=np.array([_expected_found(levels[:, tag], truth, tag, DEFAULT.width) for tag in tags]),
        false=np.array([_expected_false_events(levels[:, tag], truth, tag, DEFAULT.false_width) for tag in tags]),
        minutes=truth.minutes,
    )


def choose_points(material: Evidence, floor: Doubles, rule: CalibrationRule = DEFAULT) -> Calibration:
    """Return the operating points; `floor`, float64[tags], is the lowest for a tag without recordings.

    Raises:
        BadRequest: No recording has a tag of the model.
    """
    has = material.clips > 0
    if not has.any():
        raise BadRequest("points cannot be set: no recording has a tag of the model")
    all_tags = (material.found[has] / material.clips[has, np.newaxis]).mean(axis=0)
    smoothed = (material.found + rule.prior * all_tags) / (material.clips + rule.prior)[:, np.newaxis]
    false = (material.false + rule.false_prior * material.false.mean(axis=0)) / (1.0 + rule.false_prior)
    best = (smoothed - rule.cost * false / material.minutes).argmax(axis=1)
    points = np.array([point_at(int(level)) for level in GRID[best]])
    return Calibration(
        points=tuple(np.where(has, points, np.maximum(points, floor)).tolist()), clips=tuple(material.clips.tolist())
    )


def calibrate_bundled(scored: ScoredRecordings) -> Calibration:
    """Return the points of a bundled model; many of its tags have no recordings.

    In a model without a second one, tags with a head keep their points, which were set on held-out recordings; the
    heads were learnt from these ones. With a second model, all points are chosen anew.
    """
    tags = scored.manifest.tags
    calibration = choose_points(gather_evidence(scored), np.full(len(tags), BLIND))
    has_head = [tag.head is not None and scored.manifest.second is None for tag in tags]
    return Calibration(
        points=tuple(np.where(has_head, [tag.point for tag in tags], calibration.points).tolist()),
        clips=tuple(np.where(has_head, [tag.clips for tag in tags], calibration.clips).tolist()),
    )


def with_points(manifest: Manifest, calibration: Calibration, stream: Calibration | None = None) -> Manifest:
    """Return the manifest with other operating points and without figures, which belonged to the old points.

    `stream` has the points for streams if a second model scores them differently.
    """
    tags = tuple(
        msgspec.structs.replace(tag, point=point, clips=clips)
        for tag, point, clips in zip(manifest.tags, calibration.points, calibration.clips, strict=True)
    )
    second = manifest.second
    if second is not None:
        recording = msgspec.structs.replace(second.recording, points=calibration.points)
        of_streams = msgspec.structs.replace(second.stream, points=(stream or calibration).points)
        second = msgspec.structs.replace(second, recording=recording, stream=of_streams)
    return msgspec.structs.replace(manifest, tags=tags, second=second, figures={}, evaluation=None)


def _expected_found(levels: Levels, truth: Truth, tag: int, width: float) -> Doubles:
    true = truth.true[:, tag]
    recordings, first = np.unique(truth.recording[true], return_index=True)
    highest = np.maximum.reduceat(levels[true], first) if recordings.size else levels[:0]
    return _count_reaching(highest, width)


def _expected_false_events(levels: Levels, truth: Truth, tag: int, width: float) -> Doubles:
    # The number of runs is the number of windows that reach a level, less the pairs of neighbours that both do.
    false = np.where(truth.allowed[:, tag], np.iinfo(np.int16).min, levels)
    pairs = np.minimum(false[1:], false[:-1])[truth.recording[1:] == truth.recording[:-1]]
    return _count_reaching(false[false > FAR], width) - _count_reaching(pairs[pairs > FAR], width)


def _count_reaching(levels: Levels, width: float) -> Doubles:
    """Return how many levels reach each level of `GRID`, smoothed by a logistic function of `width` logits."""
    # Add half a step: a score lies anywhere in the step that begins at its level.
    distances = STEP * (levels[:, np.newaxis] + 0.5 - GRID) / width
    reaching: Doubles = (1.0 / (1.0 + np.exp(-distances))).sum(axis=0)
    return reaching
