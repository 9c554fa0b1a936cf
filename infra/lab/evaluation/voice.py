"""Evaluates speaker models: identification and diarization."""

from pathlib import Path
from typing import Final

from infra.lab.evaluation import utterances
from infra.lab.evaluation.conversations import make_conversations
from infra.lab.evaluation.diarization import DiarizationErrors, diarization_errors
from infra.lab.evaluation.identification import evaluate_identification, identification_figures
from infra.lab.evaluation.meetings import meeting_errors, read_meetings
from infra.lab.evaluation.report import OURS, EvaluationReport
from infra.lab.evaluation.speakers import channel_errors, evaluate_speakers
from streams.voice import activity
from streams.voice import loudness as levels
from streams.voice.diarization import diarize
from streams.voice.speaker_engine import SpeakerEngine

#: Conversations made from the utterances.
CONVERSATIONS: Final = 12


def evaluate_speaker_model(engine: SpeakerEngine, data: Path) -> EvaluationReport:
    """Measure a speaker-embedding model on the utterances of a data directory and on conversations made from them.

    Raises:
        AudioError: An utterance does not decode.
        EngineError: A model failed.
    """
    measured, _ = evaluate_speakers(engine, data / "speech")
    measured |= channel_errors(engine, data / "speech")
    manifest = engine.manifest
    measured |= identification_figures(
        *evaluate_identification(engine, data / "speech"), manifest.identification_settings.threshold
    )
    if manifest.diarization is not None:
        measured["diarization_error"] = diarization_error(engine, data)
        if meetings := read_meetings(data / "meeting"):
            network = activity.bundled_detector()
            errors = (meeting_errors(meeting, diarize([meeting.samples], engine, network)) for meeting in meetings)
            measured["diarization_error_meetings"] = sum(errors, DiarizationErrors()).rate
    seen = manifest.source.startswith(OURS)
    return EvaluationReport(
        manifest.model_id, figures=manifest.figures if seen else measured, seen=seen, measured=measured
    )


def diarization_error(engine: SpeakerEngine, data: Path) -> float:
    """Return the error rate on conversations of readers, without a collar; the number of readers is not given."""
    network = activity.bundled_detector()
    total = DiarizationErrors()
    for conversation in make_conversations(utterances.read(data / "speech"), network, CONVERSATIONS):
        turns = diarize([levels.levelled(conversation.samples)], engine, network)
        total += diarization_errors(conversation.turns, turns)
    return total.rate
