"""Learns a tag: its head, its operating point, and figures on held-out recordings.

Each recording is scored by a head that was learnt without it.

The background may contain the sound itself under another label. Then held-out recordings of the sound score no higher
than held-out recordings of that label, although the heads were trained against it, and the label is left out. Sounds
that are merely similar do score lower.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from infra.teaching import heads
from infra.teaching.heads import EmbeddedWindows, FeatureSpace
from infra.teaching.negatives import FOLDS, USER_LABEL, Negatives, folds_of
from infra.teaching.operating_points import Bools, Doubles, average_precision, false_events_from, lowest_point
from streams.models.protocol import Floats
from topics.errors import BadRequest

#: Fewer recordings do not generalise.
FEWEST: Final = 10
#: A label of the sound itself scores above the sound in about half of all pairs of recordings (0.30 to 0.54 in trials
#: with twelve recordings); the nearest other sounds did in up to 0.25.
SAME: Final = 0.28
#: At most this many labels are left out; if a head confuses the sound with more, its figures must show it.
MOST_SAME: Final = 2


class HeldOutFigures(msgspec.Struct, frozen=True):
    """Figures on held-out recordings; NaN if there are none."""

    #: Recordings with the sound, and the share of them in which the tag is reported.
    clips: int
    recall: float
    #: Mean precision over the recordings with the sound, by their highest scores.
    average_precision: float
    #: False events a minute and the minutes counted: in the user's negatives, and in the background.
    false_on_given: float
    given_minutes: float
    false_on_background: float
    background_minutes: float


class LearntTag(msgspec.Struct, frozen=True):
    """A head, float32[dimension + 1], whose score is 0.5 at the operating point, and its figures."""

    head: Floats
    figures: HeldOutFigures
    #: Labels of the background that were left out.
    left_out: tuple[str, ...]


def learn_tag(positives: Sequence[EmbeddedWindows], negatives: Negatives, false_per_minute: float) -> LearntTag:
    """Learn a tag from recordings of the sound, with at most `false_per_minute` false events in the negatives.

    Raises:
        BadRequest: there are too few recordings.
    """
    if len(positives) < FEWEST:
        raise BadRequest(f"{len(positives)} recordings of the sound are too few to learn it from: {FEWEST} are needed")
    within = heads.feature_space(negatives.embeddings)
    positive_logits, others = held_out_logits(positives, negatives, within)
    left_out: list[str] = []
    # One label at a time: without the sound itself a head separates similar sounds better.
    while len(left_out) < MOST_SAME and (same := _same_sound_label(positive_logits, others, negatives)):
        left_out.append(same)
        negatives = negatives.without(left_out)
        positive_logits, others = held_out_logits(positives, negatives, within)
    point = _operating_point(others, negatives, false_per_minute)
    head = heads.learn_head(positives, negatives.embeddings, negatives.weights, within)
    head[-1] -= point
    return LearntTag(head, _figures(positive_logits, others, negatives, point), tuple(left_out))


def held_out_logits(
    positives: Sequence[EmbeddedWindows], negatives: Negatives, within: FeatureSpace
) -> tuple[Doubles, Doubles]:
    """Return the logits of each recording by a head that was learnt without it.

    Returns:
        (the highest of each positive recording, float64[recordings]; of each negative window, float64[windows])
    """
    folds = folds_of(len(positives))
    positive_logits, others = np.zeros(len(positives)), np.zeros(len(negatives.embeddings))
    for fold in range(FOLDS):
        out = negatives.fold == fold
        training = [recording for recording, held in zip(positives, folds, strict=True) if held != fold]
        head = heads.learn_head(training, negatives.embeddings[~out], negatives.weights[~out], within)
        others[out] = heads.logits(head, negatives.embeddings[out])
        for number in np.flatnonzero(folds == fold).tolist():
            positive_logits[number] = heads.logits(head, positives[number].embeddings).max()
    return positive_logits, others


def _same_sound_label(positive_logits: Doubles, others: Doubles, negatives: Negatives) -> str | None:
    """Return the background label that is the sound itself, or None."""
    begins = np.flatnonzero(np.diff(negatives.recording, prepend=-1))
    highest, labels = np.maximum.reduceat(others, begins), negatives.label[begins]
    above = {
        str(label): float((highest[labels == label][:, None] >= positive_logits).mean()) for label in np.unique(labels)
    }
    above.pop(USER_LABEL, None)
    nearest = max(above, key=above.__getitem__, default=None)
    return nearest if nearest is not None and above[nearest] > SAME else None


def _operating_point(logits: Doubles, negatives: Negatives, false_per_minute: float) -> float:
    """Return the lowest logit with at most `false_per_minute` false events a minute."""
    nowhere, most = np.zeros(len(logits), np.bool_), false_per_minute * sum(negatives.minutes)
    # If no false events are allowed, it is above every logit.
    return min(lowest_point(logits, nowhere, negatives.recording, most), float(logits.max()) + 1e-3)


def _figures(positive_logits: Doubles, others: Doubles, negatives: Negatives, point: float) -> HeldOutFigures:
    begins = np.flatnonzero(np.diff(negatives.recording, prepend=-1))
    highest = np.concatenate((positive_logits, np.maximum.reduceat(others, begins)))
    own_minutes, behind = negatives.minutes

    def false(counted: Bools, minutes: float) -> float:
        events = false_events_from(others, ~counted, negatives.recording, np.array([point]))
        return float(events[0]) / minutes if minutes else float("nan")

    return HeldOutFigures(
        clips=len(positive_logits),
        recall=float((positive_logits >= point).mean()),
        average_precision=average_precision(highest, np.arange(len(highest)) < len(positive_logits)),
        false_on_given=false(negatives.label == USER_LABEL, own_minutes),
        given_minutes=own_minutes,
        false_on_background=false(negatives.label != USER_LABEL, behind),
        background_minutes=behind,
    )
