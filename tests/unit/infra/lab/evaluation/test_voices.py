"""Voice models: naming, rejection, and accepted figures."""

import msgspec
import numpy as np
import pytest
import soundfile

from infra import models
from infra.lab.evaluation import identification, lines
from infra.lab.evaluation.identification import evaluate_identification
from streams.voice import speaker_manifest as manifest
from streams.voice.speaker_engine import OnnxSpeakerEngine
from streams.voice.speaker_manifest import (
    REGISTERED,
    IdentificationSettings,
)
from tests.audio import RATE
from tests.recordings import SPEECH, rows

pytestmark = pytest.mark.slow


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
