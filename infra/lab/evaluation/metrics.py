"""Detection metrics: hits, misses and false events.

A detection is a bool[windows, tags] array, `on`: the tag is reported in the window. The windows of all recordings are
concatenated; `Truth.recording` gives the recording of each. An event is a maximal run of windows of one recording in
which a tag is reported. Truth has two parts: where a tag should be reported (`true`) and where reporting it is no fault
(`allowed`, which includes `true`). A false event is a maximal run of windows in which a tag is reported and not
allowed.
"""

import msgspec
import numpy as np

from infra.teaching.operating_points import Bools, Doubles, Indices


class Truth(msgspec.Struct, frozen=True):
    """The truth about recordings, window by window."""

    #: The recording of each window, ascending: intp[windows].
    recording: Indices
    #: The tag should be reported, and reporting it is no fault: bool[windows, tags], the first within the second.
    true: Bools
    allowed: Bools
    #: Windows with an audible sound: bool[windows].
    audible: Bools
    #: Total length of the recordings.
    minutes: float


class DetectionFigures(msgspec.Struct, frozen=True):
    """Shares are 0..1; NaN if there is nothing to count."""

    #: Share of recordings with a true tag in which one is reported where it is true.
    clip_recall: float
    #: Share of audible windows with a true tag in which one is reported.
    window_recall: float
    #: Of all tags.
    false_events_per_minute: float
    #: Share of windows with a tag that is not allowed.
    false_windows: float


def figures(on: Bools, truth: Truth) -> DetectionFigures:
    hit: Bools = np.any(on & truth.true, axis=1)
    positive: Bools = np.any(truth.true, axis=1)
    wrong: Bools = np.any(on & ~truth.allowed, axis=1)
    return DetectionFigures(
        clip_recall=_share(any_by_recording(hit, truth.recording)[any_by_recording(positive, truth.recording)]),
        window_recall=_share(hit[positive & truth.audible]),
        false_events_per_minute=float(false_events(on, truth).sum()) / truth.minutes,
        false_windows=_share(wrong),
    )


def count_clips_found(on: Bools, truth: Truth) -> tuple[Indices, Indices]:
    """Return (recordings of each tag that are found, all recordings of the tag): intp[tags] each."""
    hits = any_by_recording(on & truth.true, truth.recording)
    return hits.sum(axis=0), any_by_recording(truth.true, truth.recording).sum(axis=0)


def count_clips_reported(on: Bools, truth: Truth) -> tuple[Indices, Indices]:
    """Return (recordings in which each tag is reported, those in which the report is allowed): intp[tags] each."""
    reported = any_by_recording(on, truth.recording)
    return reported.sum(axis=0), any_by_recording(on & truth.allowed, truth.recording).sum(axis=0)


def false_events(on: Bools, truth: Truth) -> Indices:
    """Return the number of false events of each tag: intp[tags]."""
    counts: Indices = event_starts(on & ~truth.allowed, truth.recording).sum(axis=0)
    return counts


def event_starts(on: Bools, recording: Indices) -> Bools:
    """Return where events begin: the tag is reported in the window and not in the previous one."""
    before = np.zeros_like(on)
    before[1:] = on[:-1]
    before[_starts(recording)] = False
    return on & ~before


def median_of_three(on: Bools, recording: Indices) -> Bools:
    """Return the detections after a median over three windows; the outermost windows count twice.

    At a single threshold this equals the median of the scores.
    """
    starts = _starts(recording)
    ends = np.append(starts[1:], len(on)) - 1
    before, after = np.roll(on, 1, axis=0), np.roll(on, -1, axis=0)
    before[starts], after[ends] = on[starts], on[ends]
    return (on & before) | (on & after) | (before & after)


def naming_accuracy(scores: Doubles, recording: Indices, right: Indices) -> float:
    """Return the share of recordings whose highest mean score is in the right column.

    Args:
        scores: float64[windows, columns].
        recording: The recording of each window, ascending: intp[windows].
        right: The column of each recording: intp[recordings].
    """
    starts = _starts(recording)
    lengths = np.diff(np.append(starts, len(scores)))
    means = np.add.reduceat(scores, starts, axis=0) / lengths[:, None]
    return _share(means.argmax(axis=1) == right)


def any_by_recording(windows: Bools, recording: Indices) -> Bools:
    """Return which recordings have a true window: bool[recordings, ...] from bool[windows, ...]."""
    return np.logical_or.reduceat(windows, _starts(recording), axis=0)


def _starts(recording: Indices) -> Indices:
    return np.flatnonzero(np.append(True, recording[1:] != recording[:-1]))


def _share(values: Bools) -> float:
    return float(values.mean()) if values.size else float("nan")
