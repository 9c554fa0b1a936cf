"""Diarization error rate: the share of speech time that is missed, false alarm, or given to the wrong speaker.

Defined as in NIST's Rich Transcription evaluations (md-eval). At each instant r speakers of the reference and h of the
hypothesis talk. A one-to-one mapping of speakers maximises the total of c, the number of them who agree. Missed is
max(0, r - h), false alarm max(0, h - r), confusion min(r, h) - c. The rate is their sum divided by the sum of r.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import msgspec
import numpy as np

from infra.teaching.operating_points import Doubles
from streams.voice.diarization import DiarizationTurn

#: NIST excludes this much time on both sides of each end of a reference turn.
COLLAR_S: Final = 0.25


class Summed(msgspec.Struct, frozen=True):
    """Amounts that are added one by one."""

    def __add__(self, other: Self) -> Self:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return type(self)(*(one + another for one, another in pairs))


class DiarizationErrors(Summed, frozen=True):
    """Seconds of each kind of error, and of reference speech, summed over speakers."""

    missed_s: float = 0.0
    false_alarm_s: float = 0.0
    confusion_s: float = 0.0
    speech_s: float = 0.0

    @property
    def rate(self) -> float:
        """The diarization error rate, which false alarms can raise above 1."""
        return (self.missed_s + self.false_alarm_s + self.confusion_s) / max(self.speech_s, 1e-9)


def diarization_errors(
    reference: Sequence[DiarizationTurn], hypothesis: Sequence[DiarizationTurn], collar_s: float = 0.0
) -> DiarizationErrors:
    """Compare two lists of turns; time closer than `collar_s` to an end of a reference turn is excluded."""
    ends = [end for turn in reference for end in (turn.start_s, turn.end_s)]
    collars = [bound for end in ends for bound in (end - collar_s, end + collar_s)]
    bounds = np.unique([*ends, *collars, *(end for turn in hypothesis for end in (turn.start_s, turn.end_s))])
    middles = (bounds[1:] + bounds[:-1]) / 2
    counted = np.ones(len(middles))
    if collar_s > 0:
        counted = np.array([all(abs(middle - end) > collar_s for end in ends) for middle in middles], np.float64)
    seconds = np.diff(bounds) * counted
    reference_talk, hypothesis_talk = _activity_matrix(reference, middles), _activity_matrix(hypothesis, middles)
    r, h = reference_talk.sum(axis=0), hypothesis_talk.sum(axis=0)
    same = best_matching((reference_talk * seconds) @ hypothesis_talk.T)
    return DiarizationErrors(
        missed_s=float(seconds @ np.maximum(0, r - h)),
        false_alarm_s=float(seconds @ np.maximum(0, h - r)),
        confusion_s=float(seconds @ np.minimum(r, h)) - same,
        speech_s=float(seconds @ r),
    )


def best_matching(shared: Doubles) -> float:
    """Return the largest sum of entries of float64[rows, columns] with no two in one row or column.

    Exact, by dynamic programming over subsets of the shorter side: 2^n * n * m steps for a handful of speakers n.
    """
    small = shared if shared.shape[0] <= shared.shape[1] else shared.T
    best = np.full(1 << small.shape[0], -np.inf)
    best[0] = 0.0
    for column in small.T:
        before = best.copy()
        for row, value in enumerate(column):
            free = np.flatnonzero(~np.arange(len(best)) >> row & 1)
            best[free | 1 << row] = np.maximum(best[free | 1 << row], before[free] + value)
    return float(best.max())


def _activity_matrix(turns: Sequence[DiarizationTurn], middles: Doubles) -> Doubles:
    """Return float64[speakers, instants]: 1 where a speaker talks."""
    talking = np.zeros((len({turn.speaker for turn in turns}), len(middles)))
    rows = {speaker: row for row, speaker in enumerate(sorted({turn.speaker for turn in turns}))}
    for turn in turns:
        talking[rows[turn.speaker], (turn.start_s < middles) & (middles < turn.end_s)] = 1.0
    return talking
