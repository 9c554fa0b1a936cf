"""Reports of voice models: which figures are believed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from infra.lab.evaluation import voice
from infra.lab.evaluation.identification import BestMatches
from infra.lab.evaluation.speakers import SpeakerFigures
from streams.models.manifest import Graph
from streams.voice.manifest import DiarizationSettings, SpeakerManifest, UtteranceInput

MANIFEST = SpeakerManifest(
    name="voices",
    version="1",
    licence="CC0-1.0",
    source="https://example.org",
    graph=Graph("model.onnx", "0" * 64),
    input=UtteranceInput(16_000, 8_000, 480_000),
    dimension=4,
    threshold=0.5,
    figures={"eer_4s": 0.2},
)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SpeakerFigures(0.01, 0.02, 0.03, 0.04, threshold=0.6, speakers=5, pairs_4s=7, pairs_whole=6)
    monkeypatch.setattr(voice, "evaluate_speakers", lambda engine, folder: found)
    monkeypatch.setattr(voice, "channel_errors", lambda engine, folder: {"eer_4s_telephone": 0.05})
    matches = BestMatches(np.array([0.9, 0.4]), np.array([True, True]), np.array([0.1, 0.2]))
    monkeypatch.setattr(voice, "evaluate_identification", lambda engine, folder: (matches, matches))
    monkeypatch.setattr(voice, "diarization_error", lambda engine, data: 0.1)


def test_a_model_of_others_has_the_figures_measured_here() -> None:
    known = msgspec.structs.replace(MANIFEST, diarization=DiarizationSettings(2.4, 0.8, 0.7))
    report = voice.evaluate_speaker_model(SimpleNamespace(manifest=known), Path())
    assert not report.seen
    assert report.figures == report.measured
    assert report.figures["eer_4s"] == 0.01
    assert report.figures["diarization_error"] == 0.1
    assert report.figures["eer_4s_telephone"] == 0.05
    # At the model's own threshold.
    assert (report.figures["identified_10"], report.figures["identified_10_open"]) == (1.0, 0.5)
    assert "pairs_4s" not in report.figures


def test_a_model_trained_on_these_readers_keeps_its_own() -> None:
    known = msgspec.structs.replace(MANIFEST, source="infra/lab/training/speaker.py")
    report = voice.evaluate_speaker_model(SimpleNamespace(manifest=known), Path())
    assert report.seen
    assert report.figures == {"eer_4s": 0.2}
    assert report.measured["eer_4s"] == 0.01
    assert "diarization_error" not in report.measured
