"""Scores recordings with the service's own analysis, down to the stored bytes."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from infra.lab.evaluation.labels import LABELS, columns
from infra.lab.evaluation.metrics import Truth
from infra.lab.evaluation.recordings import Recording, SkippedRecording, Span
from infra.teaching.operating_points import Bools, Doubles
from streams.audio.analysis import Analysis
from streams.models.manifest import Manifest
from streams.models.protocol import Floats, SoundEngine
from topics.errors import AudioError, BadRequest
from topics.geometry import SESSIONS
from topics.scores import STEP, ZERO, probability

WORKERS: Final = 2
#: Mean power in dB of full scale below which a window counts as silent.
SILENCE_DB: Final = -50.0

#: Points are rounded, so a point may lie this fraction of a step below its level.
TOLERANCE: Final = 0.05

Bytes = npt.NDArray[np.uint8]
Levels = npt.NDArray[np.int16]


class ScoredRecordings(msgspec.Struct, frozen=True):
    """Windows of recordings as the service stores them, and their truth."""

    manifest: Manifest
    #: Scored recordings in window order, and skipped ones.
    recordings: tuple[Recording, ...]
    skipped: tuple[SkippedRecording, ...]
    #: Packed scores as stored, uint8[windows, tags]; `topics.scores` has the scale.
    stored: Bytes
    truth: Truth
    #: Scored as recordings, not as streams.
    recording: bool = True

    @property
    def reported(self) -> Bools:
        """The detections that clients see at sensitivity 0: bool[windows, tags]."""
        return self.stored >= ZERO

    @property
    def levels(self) -> Levels:
        """Scores without the operating points, in steps from one half: int16[windows, tags].

        A score of level n lies at `point_at(n)` or above. It is exact if the model's point is the point of a level;
        otherwise it may be a step too low.
        """
        return self.stored.astype(np.int16) - np.int16(ZERO) + _level(self.manifest.points(self.recording))

    def reported_at(self, points: Sequence[float], least: float = 0.5) -> Bools:
        """Return the detections at other operating points, as clients would see them: bool[windows, tags].

        Only those with the displayed probability `least` or more.
        """
        return self.levels >= _level(points) + min(n for n in range(256 - ZERO) if probability(ZERO + n) >= least)

    @property
    def probabilities(self) -> Doubles:
        """Scores in 0..1, at the middle of their step: float64[windows, tags]."""
        points = np.asarray(self.manifest.points(self.recording))
        margins = STEP * (self.stored - float(ZERO) + 0.5)
        scores: Doubles = 1.0 / (1.0 + np.exp(-margins) * (1.0 - points) / points)
        return scores


def _level(points: Sequence[float]) -> Levels:
    at = np.asarray(points)
    return np.floor(np.log(at / (1.0 - at)) / STEP + TOLERANCE).astype(np.int16)


def point_at(level: int) -> float:
    """Return the lowest score of a level, rounded as points are."""
    return round(1.0 / (1.0 + math.exp(-STEP * level)), 4)


def score_recordings(
    engine: SoundEngine,
    recordings: Sequence[Recording],
    workers: int = WORKERS,
    recording: bool = True,
    hears_silence: bool = False,
) -> ScoredRecordings:
    """Score recordings as the service does, as a `recording` or a stream; skip those that do not decode.

    With `hears_silence`, the models score digital silence of a stream too.

    Raises:
        BadRequest: No recording is left.
        EngineError: The model failed.
    """
    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(lambda given: _score(engine, given, recording, hears_silence), recordings))
    scored = [one for one in outcomes if isinstance(one, ScoredRecordings)]
    skipped = [one for one in outcomes if isinstance(one, SkippedRecording)]
    if not scored:
        first = f", the first because {skipped[0].cause}" if skipped else ""
        raise BadRequest(f"no recording can be scored{first}")
    return msgspec.structs.replace(join_scored(scored), skipped=tuple(skipped))


def join_scored(parts: Sequence[ScoredRecordings]) -> ScoredRecordings:
    """Merge parts that one model scored, in order."""
    before = np.cumsum([0, *(len(part.recordings) for part in parts[:-1])])
    truths = [part.truth for part in parts]
    return ScoredRecordings(
        manifest=parts[0].manifest,
        recordings=tuple(recording for part in parts for recording in part.recordings),
        skipped=tuple(skipped for part in parts for skipped in part.skipped),
        stored=np.concatenate([part.stored for part in parts]),
        truth=Truth(
            recording=np.concatenate([truth.recording + first for truth, first in zip(truths, before, strict=True)]),
            true=np.concatenate([truth.true for truth in truths]),
            allowed=np.concatenate([truth.allowed for truth in truths]),
            audible=np.concatenate([truth.audible for truth in truths]),
            minutes=math.fsum(truth.minutes for truth in truths),
        ),
        recording=parts[0].recording,
    )


def _score(
    engine: SoundEngine, given: Recording, recording: bool, hears_silence: bool
) -> ScoredRecordings | SkippedRecording:
    try:
        pcm = given.decode()
    except AudioError as error:
        return SkippedRecording(given.name, str(error))
    analysis = Analysis(engine, SESSIONS, pcm.rate, recording=recording, hears_silence=hears_silence)
    packed = analysis.feed(pcm.samples) + analysis.finish()
    stored = np.frombuffer(packed, np.uint8).reshape(-1, len(engine.manifest.tags))
    audible = window_power(pcm.samples, pcm.rate, len(stored)) >= 10.0 ** (SILENCE_DB / 10.0)
    truth = _truth(engine.manifest, given, audible, len(pcm.samples) / pcm.rate / 60.0)
    return ScoredRecordings(engine.manifest, (given,), (), stored, truth, recording)


def _truth(manifest: Manifest, recording: Recording, audible: Bools, minutes: float) -> Truth:
    """Return the truth about one recording.

    A tag is true in windows that its span covers by half a second, or by the span's whole length, and allowed in all
    windows it touches.
    """
    windows = len(audible)
    true = np.zeros((windows, len(manifest.tags)), np.bool_)
    allowed = np.zeros_like(true)
    for span in recording.spans:
        covered = _covered(span, windows)
        expected, tolerated = columns(span.meaning, manifest.tags)
        true[:, expected] |= (covered >= _enough(span))[:, None]
        allowed[:, tolerated] |= (covered > 0)[:, None]
    return Truth(np.zeros(windows, np.intp), true, allowed, audible, minutes)


def _covered(span: Span, windows: int) -> Doubles:
    """Return how many seconds of each window a sound fills; negative if it is further away."""
    starts = np.arange(windows) * SESSIONS.hop_ms / 1000
    return np.minimum(starts + SESSIONS.window_ms / 1000, span.end) - np.maximum(starts, span.start)


def _enough(span: Span) -> float:
    return min(0.5, span.end - span.start)


def sound_recall(scored: ScoredRecordings, on: Bools) -> float:
    """Return the share of sounds with a tag that detections, bool[windows, tags], report where they occur.

    Speech is excluded, because it is always found. NaN if there is no other sound.
    """
    found = []
    windows = np.bincount(scored.truth.recording)
    for recording, of_it in zip(scored.recordings, np.split(on, np.cumsum(windows)[:-1]), strict=True):
        for span in recording.spans:
            expected, _ = columns(span.meaning, scored.manifest.tags)
            if expected and span.meaning != LABELS["speech"]:
                found.append(of_it[_covered(span, len(of_it)) >= _enough(span)][:, expected].any())
    return float(np.mean(found)) if found else float("nan")


def window_power(samples: Floats, rate: int, windows: int) -> Doubles:
    """Return the mean power of each of the first windows, float64[windows]."""
    energy = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    starts = np.arange(windows) * (rate * SESSIONS.hop_ms // 1000)
    ends = np.minimum(starts + rate * SESSIONS.window_ms // 1000, len(samples))
    return (energy[ends] - energy[starts]) / (ends - starts)
