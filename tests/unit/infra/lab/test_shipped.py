"""Shipped models are as documented: notice, figures, tags, points, the card, and the background of learnt tags."""

import lzma
from pathlib import Path

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.converters.front_end import FRONT_END
from infra.lab.evaluation import calibration, labels, scenes
from infra.lab.evaluation.bundled import bundled_manifests
from infra.lab.evaluation.card import model_card
from infra.lab.evaluation.sound import point_at
from infra.lab.training import sed_mini
from infra.lab.training.attribution import notice
from infra.lab.training.background import MOST
from infra.lab.training.clips import KNOWN, Clip, read_clips
from infra.lab.training.patches import window_grid
from infra.teaching import background
from streams.models import manifest
from streams.models.sound_engine import OnnxSoundEngine
from streams.voice import overlap_manifest
from tests.conftest import ROOT
from tests.recordings import TRAINING
from topics.errors import EngineError

pytestmark = pytest.mark.slow

MINI = models.directory("sed_mini")
YAMNET = manifest.read(models.directory(models.YAMNET))


def clip(author: str, licence: str) -> Clip:
    return Clip(Path(f"{author}.ogg"), "dog", 1, author, licence, f"http://sounds/{author}")


def test_notice_credits_required_authors() -> None:
    text = notice([clip("zoe", "CC-BY"), clip("Ann", "CC-BY"), clip("Free", "CC0")])
    assert text.index("\nAnn\n  http://sounds/Ann\n") < text.index("\nzoe\n")
    assert "Free" not in text
    assert "1 clips in the public domain" in text
    assert (MINI / "NOTICE").read_text(encoding="utf-8") == notice(read_clips(TRAINING))


def test_licence_that_forbids_training_is_rejected() -> None:
    with pytest.raises(EngineError, match=r"^x\.ogg: licence 'CC-BY-NC' is not one of CC0, CC-BY, CC-BY-4\.0$"):
        notice([clip("x", "CC-BY-NC")])


def test_small_model_matches_its_recipe() -> None:
    shipped = OnnxSoundEngine(MINI).manifest
    assert (MINI / "model.onnx").stat().st_size <= 1_000_000
    assert [tag.name for tag in shipped.tags] == [name for _, name, _ in KNOWN]
    assert shipped.figures["ten_class_clip_accuracy"] >= 0.9
    made = sed_mini.manifest_of((MINI / "model.onnx").read_bytes(), shipped.points(recording=True), shipped.figures)
    assert msgspec.structs.replace(shipped, evaluation=None) == made
    assert YAMNET.input == FRONT_END, "that of its teacher"
    # Its counts come from its training data.
    assert shipped.evaluation is not None
    assert all(counts.learnt for counts in shipped.evaluation.tags.values())


def test_silence_and_hum_are_not_reported() -> None:
    engine = OnnxSoundEngine(MINI)
    hum = 0.1 * np.sin(2 * np.pi * 50 * np.arange(16_000) / 16_000)
    for sound in (np.zeros(16_000), hum):
        (patch,) = window_grid(sound.astype(np.float32))
        assert (engine.scores(patch) < np.array(engine.manifest.points(recording=True))).all()


def test_background_fits_bundled_model() -> None:
    found = background.read(YAMNET)
    assert found is not None
    assert found.embeddings.shape[1] == 1024
    assert len(found.embeddings) == len(found.recording) == len(found.source)
    assert 0 <= found.embeddings.min() <= found.embeddings.max() <= background.LARGEST
    assert np.unique(found.recording).tolist() == list(range(len(found.labels)))
    assert (np.diff(found.recording) >= 0).all()
    assert "speech" in found.labels
    assert np.bincount(found.recording).max() <= MOST
    # A recording has one source.
    assert len(np.unique(np.stack((found.recording, found.source)), axis=1).T) == len(found.labels)
    credits = (background.HERE / background.ATTRIBUTION).read_text()
    assert "ESC-50" in credits
    assert "LibriSpeech" in credits
    other = msgspec.structs.replace(YAMNET.graph, sha256="0" * 64)
    assert background.read(msgspec.structs.replace(YAMNET, graph=other)) is None


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"no array")])
def test_damaged_background_is_reported(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "HERE", tmp_path)
    background.path_for(YAMNET).write_bytes(content)
    with pytest.raises(EngineError, match=r"npy\.xz: "):
        background.read(YAMNET)


def test_points_come_from_calibration() -> None:
    levels = {point_at(int(level)) for level in calibration.GRID}
    for tag in YAMNET.tags:
        assert tag.point in levels, tag.name
        assert tag.clips or tag.point >= calibration.BLIND, tag.name


def test_models_page_contains_card() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text.count("<!-- model card -->") == 1, "mark the place with <!-- model card --> and <!-- /model card -->"
    _, _, rest = text.partition("<!-- model card -->\n")
    inside, _, _ = rest.partition("<!-- /model card -->")
    assert inside.strip("\n") == model_card(bundled_manifests()), "run earshot evaluate --card"


def test_labels_use_known_tags_and_scenes_use_known_labels() -> None:
    names = {tag.name for tag in YAMNET.tags}
    for label, meaning in labels.LABELS.items():
        assert {*meaning.true, *meaning.tolerated} <= names, label
        assert not set(meaning.true) & set(meaning.tolerated), label
    assert len(labels.LABELS) == 51
    assert all(tag in labels.LABELS[label].true for label, tag in labels.TEN.items())
    for setting in scenes.SETTINGS:
        assert {*setting.background, *setting.events} <= labels.LABELS.keys()


def test_overlap_network_meets_promised_figures() -> None:
    figures = overlap_manifest.read(models.directory(models.OVERLAP)).figures
    assert min(figures["overlap_found"], figures["overlap_precision"]) >= 0.65
    for kind in ("talks", "conversations", "calls"):
        assert figures[f"diarization_error_{kind}_marked"] <= figures[f"diarization_error_{kind}"]
    assert figures["diarization_error_meetings_marked"] <= 0.9 * figures["diarization_error_meetings"]
