"""Evaluates speaker models: identification and diarization."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.lab.evaluation import utterances
from infra.lab.evaluation.conversations import make_conversations
from infra.lab.evaluation.diarization import DiarizationErrors, diarization_errors
from infra.lab.evaluation.identification import evaluate_identification, identification_figures
from infra.lab.evaluation.meetings import Meeting, meeting_errors, read_meetings
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
    rates = msgspec.structs.asdict(evaluate_speakers(engine, data / "speech"))
    measured = {name: value for name, value in rates.items() if name.startswith("eer_")}
    measured |= channel_errors(engine, data / "speech")
    manifest = engine.manifest
    measured |= identification_figures(
        *evaluate_identification(engine, data / "speech"), manifest.identification_settings.threshold
    )
    if manifest.diarization is not None:
        measured["diarization_error"] = diarization_error(engine, data)
        meetings = read_meetings(data / "meeting")
        if meetings:
            measured["diarization_error_meetings"] = meetings_error(engine, meetings)
    return EvaluationReport(
        model=manifest.model_id,
        lines=(),
        tags=(),
        figures=manifest.figures if manifest.source.startswith(OURS) else measured,
        seen=manifest.source.startswith(OURS),
        measured=measured,
    )


def diarization_error(engine: SpeakerEngine, data: Path) -> float:
    """Return the error rate on conversations of readers, without a collar; the number of readers is not given."""
    network = activity.bundled_detector()
    total = DiarizationErrors()
    for conversation in make_conversations(utterances.read(data / "speech"), network, CONVERSATIONS):
        turns = diarize([levels.levelled(conversation.samples)], engine, network)
        total += diarization_errors(conversation.turns, turns)
    return total.rate


def meetings_error(engine: SpeakerEngine, meetings: Sequence[Meeting]) -> float:
    """Return the error rate on meetings, with a collar, of turns as served to users."""
    network = activity.bundled_detector()
    errors = (meeting_errors(meeting, diarize([meeting.samples], engine, network)) for meeting in meetings)
    return sum(errors, DiarizationErrors()).rate
