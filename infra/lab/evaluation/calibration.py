"""Operating points: from which score on a tag is reported, chosen by what that finds and what it costs.

Of each tag the point is the score t with the largest U(t) = F(t) - c N(t): F is the expected share of its recordings
that are found, N the expected number of its false events a minute, and c (`Rule.cost`) what one false event a minute is
worth. Both are known from few recordings, so both are smoothed and lean on all tags together. With m recordings that
have the tag and x_i the highest score of each, scores and t as logits, s the logistic function,

    F(t) = (sum_i s((x_i - t) / Rule.width) + Rule.prior F_all(t)) / (m + Rule.prior)

where F_all is the mean of the sums' shares over the tags that have recordings: the fewer there are, the nearer the
point is to that of a tag of which nothing is known. N is smoothed alike and leans on the mean over all tags.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from infra.lab.evaluation.metrics import Doubles, Indices, Truth, clips_found
from infra.lab.evaluation.sound import Levels, Scored, point_at
from streams.models.manifest import Manifest
from topics.errors import BadRequest
from topics.scores import STEP

#: Levels that points are chosen from: scores of 0.05 to 0.8.
GRID: Final = np.arange(-42, 21)
#: Scores below this level are never near a point: their part in N is left out.
FAR: Final = int(GRID[0]) - 40


class Rule(msgspec.Struct, frozen=True):
    """What points are chosen by; see the module."""

    cost: float = 2.5
    #: Width of the smoothing of recordings that have a tag, and of false events, in logits.
    width: float = 0.7
    false_width: float = 0.3
    #: How many recordings of a tag all tags together count as much as, and of N, how many tags the mean counts as.
    prior: float = 2.0
    false_prior: float = 0.5


class Calibration(msgspec.Struct, frozen=True):
    """Operating points of the tags, and on how many recordings of the tag each rests."""

    points: tuple[float, ...]
    clips: tuple[int, ...]


DEFAULT: Final = Rule()
#: Lowest point of a tag of which there is no recording, for the bundled models.
BLIND: Final = point_at(-12)


class Evidence(msgspec.Struct, frozen=True):
    """What is known of each tag at each level of `GRID`."""

    #: Recordings that have the tag: intp[tags].
    clips: Indices
    #: Expected number of them that are found, and of false events: float64[tags, levels].
    found: Doubles
    false: Doubles
    minutes: float


def evidence(scored: Scored, rule: Rule = DEFAULT) -> Evidence:
    """Return what recordings say of the tags of the model that scored them."""
    levels, truth = scored.levels, scored.truth
    tags = range(levels.shape[1])
    return Evidence(
        clips=clips_found(truth.true, truth)[1],
        found=np.array([_found(levels[:, tag], truth, tag, rule.width) for tag in tags]),
        false=np.array([_false(levels[:, tag], truth, tag, rule.false_width) for tag in tags]),
        minutes=truth.minutes,
    )


def choose(material: Evidence, floor: Doubles, rule: Rule = DEFAULT) -> Calibration:
    """Return the operating points; `floor`, float64[tags], is the lowest for a tag that no recording has."""
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


def of_bundled(scored: Scored, rule: Rule = DEFAULT) -> Calibration:
    """Return the points of a model that ships, set on recordings of which many tags have none.

    Heads keep their points: they were learnt from these recordings, and their points from those that were held out.
    """
    tags = scored.manifest.tags
    calibration = choose(evidence(scored, rule), np.full(len(tags), BLIND), rule)
    has_head = [tag.head is not None for tag in tags]
    return Calibration(
        points=tuple(np.where(has_head, [tag.point for tag in tags], calibration.points).tolist()),
        clips=tuple(np.where(has_head, [tag.clips for tag in tags], calibration.clips).tolist()),
    )


def calibrated(manifest: Manifest, calibration: Calibration) -> Manifest:
    """Return the manifest with other operating points; its figures, measured with the old ones, are gone."""
    tags = tuple(
        msgspec.structs.replace(tag, point=point, clips=clips)
        for tag, point, clips in zip(manifest.tags, calibration.points, calibration.clips, strict=True)
    )
    return msgspec.structs.replace(manifest, tags=tags, figures={})


def _found(levels: Levels, truth: Truth, tag: int, width: float) -> Doubles:
    """Return the expected number of recordings of a tag that are found at each level of `GRID`."""
    true = truth.true[:, tag]
    recordings, first = np.unique(truth.recording[true], return_index=True)
    highest = np.maximum.reduceat(levels[true], first) if recordings.size else levels[:0]
    return _reaching(highest, width)


def _false(levels: Levels, truth: Truth, tag: int, width: float) -> Doubles:
    """Return the expected number of false events of a tag at each level of `GRID`."""
    # As in `metrics.false_events_from`: windows that reach a level, less pairs of neighbours that both do.
    false = np.where(truth.allowed[:, tag], np.iinfo(np.int16).min, levels)
    pairs = np.minimum(false[1:], false[:-1])[truth.recording[1:] == truth.recording[:-1]]
    return _reaching(false[false > FAR], width) - _reaching(pairs[pairs > FAR], width)


def _reaching(levels: Levels, width: float) -> Doubles:
    """Return how many levels reach each of `GRID`, each level spread by a logistic function of a width in logits."""
    # Half a step more: scores lie anywhere in the step that begins at their level.
    distances = STEP * (levels[:, np.newaxis] + 0.5 - GRID) / width
    reaching: Doubles = (1.0 / (1.0 + np.exp(-distances))).sum(axis=0)
    return reaching
