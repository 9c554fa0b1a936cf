"""Shipped models are as documented: notice, figures, tags, points, the card, and the background of learnt tags."""

import lzma
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from infra import models
from infra.lab.converters.front_end import FRONT_END
from infra.lab.evaluation import bundled, calibration, labels, manifest_files, scenes
from infra.lab.evaluation.bundled import bundled_manifests
from infra.lab.evaluation.card import model_card
from infra.lab.evaluation.report import EvaluationReport
from infra.lab.evaluation.sound import point_at
from infra.lab.training import cross_check, sed_mini
from infra.lab.training.attribution import notice
from infra.lab.training.background import MOST
from infra.lab.training.clips import KNOWN, LABELS, Clip, read_clips
from infra.lab.training.cross_check import HeldOutScores
from infra.lab.training.patches import window_grid
from infra.models import manifests
from infra.teaching import background
from streams.models import manifest
from streams.models.manifest import Evaluation, Manifest, TagEvaluation
from streams.models.sound_engine import OnnxSoundEngine
from tests.conftest import ROOT
from tests.recordings import TRAINING
from tests.unit.infra.lab.evaluation.engines import Levels
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


def test_folds_share_no_source() -> None:
    clips = read_clips(TRAINING)
    assert len(clips) == 617 + 251
    folds: dict[str, set[int]] = {}
    for one in clips:
        source = one.path.stem.split("-")[1] if one.label != "speech" else one.author
        folds.setdefault(source, set()).add(one.fold)
    assert max(len(found) for found in folds.values()) == 1
    assert {one.label for one in clips} >= {label for label, _, _ in KNOWN}


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


def test_fold_is_scored_at_points_of_other_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dogs, one of them scored as rain; wind scored as rain in one of two windows; a reader."""
    dog, rain, speech = (LABELS.index(label) for label in ("dog", "rain", "speech"))
    scores = np.full((8, len(LABELS)), 0.01, np.float32)
    for window, column in enumerate([dog, dog, rain, dog, rain, dog, speech, speech]):
        scores[window, column] = 0.9
    scores[3, dog], scores[2, dog], scores[5, dog] = 0.6, 0.1, 0.3
    asked: list[list[int]] = []

    def operating_points(of: HeldOutScores) -> list[float]:
        asked.append(np.unique(of.fold).tolist())
        return [0.5] * len(LABELS)

    monkeypatch.setattr(cross_check, "operating_points", operating_points)
    found = cross_check.figures(
        HeldOutScores(
            scores=scores,
            recording=np.array([0, 0, 1, 1, 2, 2, 3, 3]),
            fold=np.array([1, 1, 2, 2, 1, 1, 3, 3]),
            label=np.array([dog, dog, dog, dog, -1, -1, speech, speech]),
            group=np.array(["known"] * 4 + ["other"] * 2 + ["speech"] * 2),
            audible=np.ones(8, bool),
        )
    )
    assert asked == [[2, 3], [1, 3], [1, 2]]
    assert (found["ten_class_clip_accuracy_fold_1"], found["ten_class_clip_accuracy_fold_2"]) == (1.0, 0.0)
    assert (found["known_clip_recall"], found["known_window_recall"]) == (1.0, 0.75)
    assert (found["known_false_windows"], found["other_false_windows"], found["speech_false_windows"]) == (0.25, 0.5, 0)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for name in ("manifest.json", "tags.csv"):
        shutil.copyfile(models.directory(models.YAMNET) / name, tmp_path / name)
    return tmp_path


def test_writing_figures_keeps_model_id(copied: Path) -> None:
    before = manifests.read(copied)
    evaluation = Evaluation("by ear", 3, {"Dog_bark": TagEvaluation(3, 2, 4, 2, 0.75)})
    bundled.write_figures(copied, EvaluationReport("x", (), (), {"clip_recall": 0.5}, evaluation=evaluation))
    after = manifests.read(copied)
    assert isinstance(after, Manifest)
    assert after.figures == {"clip_recall": 0.5}
    assert after.evaluation == evaluation
    assert after.model_id == before.model_id


def test_tag_table_matches_manifest(copied: Path) -> None:
    manifest_files.write_tags(copied, YAMNET)
    assert (copied / "tags.csv").read_bytes() == (models.directory(models.YAMNET) / "tags.csv").read_bytes()


def test_points_come_from_calibration() -> None:
    levels = {point_at(int(level)) for level in calibration.GRID}
    for tag in YAMNET.tags:
        assert tag.point in levels, tag.name
        assert tag.clips or tag.point >= calibration.BLIND, tag.name


def test_model_card_names_and_orders_figures() -> None:
    figures = {"window_ms_ratio": 0.25, "clip_recall": 0.7866, "scenes_false_windows_median": 0.0192}
    figures |= {"odd_share": 0.5, "speech_false_windows": 0.1}
    plain = Levels(0.5, 0.5).manifest
    ours = msgspec.structs.replace(plain, name="ours", figures=figures)
    other = msgspec.structs.replace(plain, name="other", figures={"false_events_per_minute": 5.1345})
    assert model_card([ours, other]).splitlines() == [
        "| sound events | `ours` | `other` |",
        "| --- | ---: | ---: |",
        "| licence | CC0-1.0 | CC0-1.0 |",
        "| tags, and those with a point set on clips of the sound | 2, 0 | 2, 0 |",
        "| clips whose sound is found | 78.7 % |  |",
        "| false events a minute, clips of all sounds |  | 5.13 |",
        "| windows with a false tag, scenes, median of three | 1.9 % |  |",
        "| time per window, `yamnet` = 1 | 0.25 |  |",
        "| odd share | 50.0 % |  |",
    ]


def test_models_page_contains_card() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text.count("<!-- model card -->") == 1, "mark the place with <!-- model card --> and <!-- /model card -->"
    _, _, rest = text.partition("<!-- model card -->\n")
    inside, _, _ = rest.partition("<!-- /model card -->")
    assert inside.strip("\n") == model_card(bundled_manifests()), "run earshot evaluate --card"


def test_default_model_is_first_and_has_figures() -> None:
    first = bundled_manifests()[0]
    assert first.name == "yamnet-ced"
    for name in ("ten_class_clip_accuracy", "clip_recall", "false_events_per_minute", "scenes_false_windows"):
        assert name in first.figures


def test_labels_use_known_tags_and_scenes_use_known_labels() -> None:
    names = {tag.name for tag in YAMNET.tags}
    for label, meaning in labels.LABELS.items():
        assert {*meaning.true, *meaning.tolerated} <= names, label
        assert not set(meaning.true) & set(meaning.tolerated), label
    assert len(labels.LABELS) == 51
    assert all(tag in labels.LABELS[label].true for label, tag in labels.TEN.items())
    for setting in scenes.SETTINGS:
        assert {*setting.background, *setting.events} <= labels.LABELS.keys()
