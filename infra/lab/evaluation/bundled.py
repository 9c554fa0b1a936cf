"""Evaluates models by kind, and writes the figures into the manifests of bundled models."""

from pathlib import Path

import msgspec

from infra import models
from infra.lab.evaluation import overlap, report, transcription, voice
from infra.lab.evaluation.report import EvaluationReport
from infra.models import manifests, whisper_files
from infra.models.manifests import AnyManifest
from infra.models.speech_manifest import SpeechManifest
from streams.models.manifest import FILE, Manifest
from streams.models.sound_engine import OnnxSoundEngine
from streams.voice.overlap import OnnxOverlapDetector
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import SpeakerManifest


def evaluate_model(directory: Path, data: Path) -> EvaluationReport:
    """Measure a model of any kind on a data directory.

    Raises:
        BadRequest: The recordings are missing.
        EngineError: The model is unusable, or failed.
    """
    manifest = manifests.read(directory)
    if isinstance(manifest, SpeechManifest):
        return transcription.evaluate_speech_model(directory, data)
    if isinstance(manifest, OverlapManifest):
        return overlap.evaluate_overlap_model(OnnxOverlapDetector(directory), data)
    if isinstance(manifest, SpeakerManifest):
        return voice.evaluate_speaker_model(OnnxSpeakerEngine(directory), data)
    return report.evaluate_bundled(OnnxSoundEngine(directory), data, OnnxSoundEngine(models.directory(models.YAMNET)))


def bundled_manifests() -> list[AnyManifest]:
    """Return the manifests of the bundled models, the default first."""
    made_here = whisper_files.DIRECTORIES["whisper-tiny.en"]
    directories = sorted(
        path.parent for path in models.directory().parent.glob(f"*/{FILE}") if path.parent.name != made_here
    )
    return [manifests.read(path) for path in sorted(directories, key=lambda path: path.name != models.DEFAULT)]


def write_figures(directory: Path, report: EvaluationReport) -> None:
    """Write figures into a manifest without changing the model's id."""
    manifest = msgspec.structs.replace(manifests.read(directory), figures=report.figures)
    if isinstance(manifest, Manifest):
        manifest = msgspec.structs.replace(manifest, evaluation=report.evaluation)
    manifests.write(directory, manifest)
