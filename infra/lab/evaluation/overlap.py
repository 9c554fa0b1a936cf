"""Evaluates an overlap network: overlaps found, and the effect of second voices on diarization errors.

Readers of `readings/` talk: often at once (`talks`), seldom (`conversations`), and seldom through a telephone
(`calls`). The meetings of `meeting/` are evaluated as well.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from infra import models
from infra.lab.evaluation.conversations import Conversation, make_conversations
from infra.lab.evaluation.diarization import COLLAR_S, DiarizationErrors, Summed, diarization_errors
from infra.lab.evaluation.lines import telephone
from infra.lab.evaluation.meetings import read_meetings
from infra.lab.evaluation.report import EvaluationReport
from infra.lab.evaluation.transcription import readings
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance
from infra.teaching.operating_points import Indices
from streams.services.timed_text import PAUSE_MS
from streams.voice import loudness as levels
from streams.voice.activity import SileroDetector, bundled_detector
from streams.voice.diarization import DiarizationTurn, diarize, lengthen_turns
from streams.voice.overlap import OverlapDetector, find_overlaps
from streams.voice.speaker_engine import OnnxSpeakerEngine, SpeakerEngine

CONVERSATIONS: Final = 24
TALKS: Final = 8
#: Of talks: the share of turns that begin before the previous one ends, and how long before.
OVERLAPPING: Final = 0.4
OVERLAP_S: Final = (0.3, 2.5)
SEED: Final = 1
#: Length of the frames in which overlaps are compared.
FRAME_S: Final = 0.01


class OverlapErrors(Summed, frozen=True):
    """Errors of turns without and with second voices, and seconds with two voices."""

    alone: DiarizationErrors = DiarizationErrors()
    marked: DiarizationErrors = DiarizationErrors()
    #: Seconds in truth, as detected, and in both.
    true_s: float = 0.0
    marked_s: float = 0.0
    found_s: float = 0.0


def evaluate_overlap_model(detector: OverlapDetector, data: Path) -> EvaluationReport:
    """Measure a network on the readings and meetings of a data directory, with the bundled speaker model.

    Raises:
        AudioError: A recording does not decode.
        BadRequest: There are no readings.
        EngineError: A model failed.
    """
    engine, activity = OnnxSpeakerEngine(models.directory(models.SPEAKERS)), bundled_detector()
    measured = {}
    for name, talks in _material(data, activity):
        errors = overlap_errors(talks, engine, activity, detector, real=name == "meetings")
        measured[f"diarization_error_{name}"] = errors.alone.rate
        measured[f"diarization_error_{name}_marked"] = errors.marked.rate
        if name == "talks":
            measured["overlap_found"] = errors.found_s / errors.true_s
            measured["overlap_precision"] = errors.found_s / max(errors.marked_s, FRAME_S)
    figures = {name: round(value, 4) for name, value in measured.items()}
    return EvaluationReport(detector.manifest.model_id, figures, measured=measured)


def _material(data: Path, activity: SileroDetector) -> Iterator[tuple[str, list[Conversation]]]:
    read = [Utterance(one.reader, one.samples) for one in readings(data / "readings")]
    yield "talks", list(make_conversations(read, activity, TALKS, SEED, OVERLAPPING, OVERLAP_S))
    seldom = list(make_conversations(read, activity, CONVERSATIONS, SEED))
    yield "conversations", seldom
    rng = np.random.default_rng(SEED)
    yield "calls", [Conversation(telephone(talk.samples, rng), talk.turns) for talk in seldom]
    if meetings := read_meetings(data / "meeting"):
        yield "meetings", meetings


def overlap_errors(
    talks: Iterable[Conversation],
    engine: SpeakerEngine,
    activity: SileroDetector,
    detector: OverlapDetector,
    *,
    real: bool,
) -> OverlapErrors:
    """Return the errors over all talks.

    Real ones are scored like meetings. Others are scored like conversations of readers: without a collar, before turns
    are lengthened.
    """
    total = OverlapErrors()
    for talk in talks:
        levelled = levels.levelled(talk.samples)
        seconds = len(talk.samples) / SAMPLE_RATE
        turns = diarize([levelled], engine, activity)
        longer = lengthen_turns(turns, seconds, PAUSE_MS / 1000)
        overlaps = find_overlaps([levelled], detector, longer)
        second = [DiarizationTurn(one.start_s, one.end_s, one.other) for one in overlaps]
        true, marked = _voices(talk.turns, seconds) >= 2, _voices(second, seconds) >= 1
        judged, collar_s = (longer, COLLAR_S) if real else (turns, 0.0)
        total += OverlapErrors(
            diarization_errors(talk.turns, judged, collar_s),
            diarization_errors(talk.turns, [*judged, *second], collar_s),
            *(FRAME_S * int(frames.sum()) for frames in (true, marked, true & marked)),
        )
    return total


def _voices(turns: Iterable[DiarizationTurn], seconds: float) -> Indices:
    """Return the number of speakers in each frame, intp[frames]."""
    voices = np.zeros(round(seconds / FRAME_S) + 1, np.intp)
    for turn in turns:
        voices[round(turn.start_s / FRAME_S) : round(turn.end_s / FRAME_S)] += 1
    return voices
