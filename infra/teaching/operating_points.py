"""Operating points of one tag: the false events at each point, and the lowest point within a budget.

A false event is a longest run of windows of one recording in which the tag is reported and not allowed.
"""

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Doubles = npt.NDArray[np.float64]


def false_events_from(scores: Doubles, allowed: Bools, recording: Indices, points: Doubles) -> Indices:
    """Return the number of false events of one tag at each operating point: intp[points].

    Args:
        scores, allowed: Of the tag, float64[windows] and bool[windows].
        recording: The recording of each window, ascending: intp[windows].
        points: float64[points].
    """
    # An event begins where a window reaches the point and the one before does not: count all that do, less the pairs.
    false = np.where(allowed, -np.inf, scores)
    pairs = np.minimum(false[1:], false[:-1])[recording[1:] == recording[:-1]]
    return _count_reaching(false, points) - _count_reaching(pairs, points)


def _count_reaching(scores: Doubles, points: Doubles) -> Indices:
    return len(scores) - np.searchsorted(np.sort(scores), points)


def average_precision(scores: Doubles, positive: Bools) -> float:
    """Return the mean, over positives, of the precision at their score: the area under the precision-recall steps."""
    if not positive.any():
        return float("nan")
    reported = scores[:, None] >= scores[None, positive]
    return float(((reported & positive[:, None]).sum(axis=0) / reported.sum(axis=0)).mean())


def lowest_point(scores: Doubles, allowed: Bools, recording: Indices, most: float) -> float:
    """Return the lowest score from which a tag can be reported with at most `most` false events.

    Args:
        scores, allowed, recording: As for `false_events_from`.
        most: The limit also holds at every higher score.
    """
    candidates = np.unique(scores)
    counts = false_events_from(scores, allowed, recording, candidates)
    too_many = np.flatnonzero(counts > most)
    if not too_many.size:
        return float(candidates[0])
    return float(candidates[too_many[-1] + 1]) if too_many[-1] + 1 < len(candidates) else float("inf")
