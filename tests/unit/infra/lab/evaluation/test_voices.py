"""Voice models: naming, rejection, turns, and accepted figures."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import soundfile

from infra import models
from infra.lab.evaluation import identification, lines, utterances, voice
from infra.lab.evaluation.conversations import make_conversations
from infra.lab.evaluation.diarization import COLLAR_S, DiarizationErrors, diarization_errors
from infra.lab.evaluation.identification import BestMatches, evaluate_identification
from infra.lab.evaluation.speakers import SpeakerFigures
from streams.voice import speaker_manifest as manifest
from streams.voice.activity import bundled_detector
from streams.voice.diarization import DiarizationTurn, diarize
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import (
    REGISTERED,
    DiarizationSettings,
    IdentificationSettings,
)
from tests.audio import RATE
from tests.recordings import SPEECH, rows

pytestmark = pytest.mark.slow


def matches(known: list[float], right: list[bool], unknown: list[float]) -> BestMatches:
    return BestMatches(np.array(known, np.float32), np.array(right), np.array(unknown, np.float32))


def test_identification_figures_are_shares_of_trials() -> None:
    plain = matches([0.9, 0.8, 0.7, 0.3], [True, True, False, True], [0.1, 0.2, 0.3, 0.75])
    cross = matches([0.9, 0.2], [True, False], [0.1, 0.9])
    assert identification.identification_figures(plain, cross, 0.5) == {
        "eer_open_10": 0.25,
        "identified_10": 0.75,
        "identified_10_open": 0.5,
        "refused_10": 0.75,
        "identified_10_cross": 0.5,
        "identified_10_open_cross": 0.5,
        "refused_10_cross": 0.5,
    }
    assert identification.open_set_error(plain + plain) == identification.open_set_error(plain)


def test_fold_is_scored_at_threshold_of_other_folds() -> None:
    low, high = matches([0.5], [True], [0.4]), matches([0.9], [True], [0.8])
    threshold, found = identification.cross_checked_figures([(low, low), (high, high)])
    assert threshold == pytest.approx(0.6)
    # At 0.8 the reader of the first fold is missed, and at 0.4 the stranger of the second is named.
    assert (found["identified_10_open"], found["refused_10"], found["eer_open_10"]) == (0.5, 0.5, 0.0)


def test_bundled_model_meets_promised_figures() -> None:
    """They were measured on held-out readers of a cross-check."""
    figures = manifest.read(models.directory(models.SPEAKERS)).figures
    assert figures["identified_10_open"] >= 0.95
    assert figures["refused_10"] >= 0.99


def test_bundled_model_identifies_readers_and_rejects_strangers() -> None:
    """It was trained on these readers: this tests that the model and its threshold work, not their quality."""
    readers = [row["speaker"] for row in rows(SPEECH / "utterances.csv") if float(row["seconds"]) > 11.5]
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    plain, cross = evaluate_identification(engine, SPEECH, readers[: 2 * REGISTERED])
    found = identification.identification_figures(plain, cross, engine.manifest.identification_settings.threshold)
    assert found["identified_10"] == 1.0
    assert found["identified_10_open"] >= 0.95
    assert found["refused_10"] >= 0.97
    with pytest.raises(ValueError, match=r"19 readers have 11\.5 s, 20 are needed"):
        evaluate_identification(engine, SPEECH, readers[: 2 * REGISTERED - 1])


def test_identification_settings_are_optional_and_validated() -> None:
    known = msgspec.structs.replace(manifest.read(models.directory(models.SPEAKERS)), identification=None)
    assert known.identification_settings == IdentificationSettings(known.threshold, 0.0)
    assert list(manifest.faults(known)) == []
    known = msgspec.structs.replace(known, identification=IdentificationSettings(1.2, -0.1))
    assert list(manifest.faults(known)) == [
        "identification.threshold is 1.2, expected a cosine between -1 and 1",
        "identification.per_doubling is -0.1, expected 0 to 1",
    ]


def test_voice_is_recognised_over_telephone() -> None:
    """The means were learnt from these readers: this tests that narrow bands are handled, not the quality."""
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    rng = np.random.default_rng(0)
    names = ["103-1240-0000", "1040-133433-0000", "1069-133699-0000", "1081-125237-0000"]
    read = [soundfile.read(SPEECH / f"{name}.ogg", dtype="float32")[0] for name in names]
    pieces = [np.split(samples[: 8 * RATE], 2) for samples in read]
    plain = np.array([engine.embed(first) for first, _ in pieces])
    called = np.array([engine.embed(lines.telephone(second, rng)) for _, second in pieces])
    cosines = plain @ called.T
    assert (cosines.argmax(axis=1) == np.arange(len(names))).all()
    assert np.diag(cosines).min() > 0.2
    # Without their own mean, all telephone voices are alike.
    assert np.abs(called @ called.T - np.eye(len(names))).max() < 0.45


MANIFEST = msgspec.structs.replace(
    manifest.read(models.directory(models.SPEAKERS)),
    source="https://example.org",
    threshold=0.5,
    identification=None,
    diarization=None,
    figures={"eer_4s": 0.2},
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SpeakerFigures(0.01, 0.02, 0.03, 0.04, threshold=0.6, speakers=5, pairs_4s=7, pairs_whole=6)
    monkeypatch.setattr(voice, "evaluate_speakers", lambda engine, folder: found)
    monkeypatch.setattr(voice, "channel_errors", lambda engine, folder: {"eer_4s_telephone": 0.05})
    matches = BestMatches(np.array([0.9, 0.4]), np.array([True, True]), np.array([0.1, 0.2]))
    monkeypatch.setattr(voice, "evaluate_identification", lambda engine, folder: (matches, matches))
    monkeypatch.setattr(voice, "diarization_error", lambda engine, data: 0.1)


@pytest.mark.usefixtures("measured")
def test_external_model_gets_measured_figures() -> None:
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


@pytest.mark.usefixtures("measured")
def test_model_trained_on_these_readers_keeps_its_figures() -> None:
    known = msgspec.structs.replace(MANIFEST, source="infra/lab/training/speaker.py")
    report = voice.evaluate_speaker_model(SimpleNamespace(manifest=known), Path())
    assert report.seen
    assert report.figures == {"eer_4s": 0.2}
    assert report.measured["eer_4s"] == 0.01
    assert "diarization_error" not in report.measured


def test_diarization_errors_add_up() -> None:
    both = DiarizationErrors(1, 2, 3, 10) + DiarizationErrors(0, 1, 0, 10)
    assert both == DiarizationErrors(1, 3, 3, 20)
    assert both.rate == pytest.approx(0.35)
    assert diarization_errors([], [DiarizationTurn(0, 1, 0)]).false_alarm_s == 1
    assert diarization_errors([], []).rate == 0


def test_bundled_model_distinguishes_readers() -> None:
    """It was trained on these readers: this tests that it works, not its quality."""
    names = ["103", "1034", "1040", "1069", "1081", "1098"]
    readers = utterances.read(SPEECH, names)
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    errors = DiarizationErrors()
    for talk in make_conversations(readers, bundled_detector(), 2):
        errors += diarization_errors(talk.turns, diarize([talk.samples], engine, bundled_detector()), COLLAR_S)
    assert errors.rate < 0.25
