"""The report of a model on a made-up data directory: two sounds, a little speech, one scene per half."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from infra.lab.evaluation import report, scenes
from infra.lab.evaluation.scenes import RATE, Setting
from streams.models.manifest import Manifest, ModelTag, TagEvaluation
from streams.models.protocol import Floats, SoundEngine
from tests.unit.infra.lab.evaluation.engines import Levels

pytestmark = pytest.mark.slow


class Power(SoundEngine):
    """Scores rain at high power, speech at low power, wind near silence."""

    def __init__(self, source: str = "here") -> None:
        names = ("Rain", "Wind_noise", "Speech")
        tags = tuple(ModelTag(name, "Test", (n,), 0.9) for n, name in enumerate(names))
        base = Levels(0.5, 0.5).manifest
        self.manifest: Manifest = msgspec.structs.replace(
            base, name=source, tags=tags, classes=names, source=source, figures={"clip_recall": 0.123}
        )

    def scores(self, patch: Floats) -> Floats:
        power = float(np.square(patch).mean())
        scores = np.full(3, 0.02, np.float32)
        scores[0 if power > 1e-5 else 2 if power > 1e-7 else 1] = 0.6
        return scores


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scenes, "SETTINGS", (Setting("room", ("wind",), ("rain",)),))
    monkeypatch.setattr(scenes, "SECONDS", 90)
    random = np.random.default_rng(0)
    clips = ["file,label,fold,src"]
    for folder in ("sound", "speech"):
        (tmp_path / folder).mkdir()
    for n in range(8):  # resampled to the model's rate, noise keeps a sixteenth of its power
        label, level = ("rain", 0.1) if n % 2 else ("wind", 0.0001)
        samples = level * random.standard_normal(3 * RATE)
        soundfile.write(tmp_path / "sound" / f"c{n}.ogg", samples, RATE)
        clips.append(f"c{n},{label},1,{n}")
    (tmp_path / "sound" / "clips.csv").write_text("\n".join(clips) + "\n")
    for n in range(2):
        soundfile.write(tmp_path / "speech" / f"s{n}.ogg", 0.003 * random.standard_normal(8 * RATE), RATE)
    (tmp_path / "speech" / "utterances.csv").write_text("file,speaker\ns0,a\ns1,b\n")
    return tmp_path


def test_report_has_plain_and_cross_checked_lines(data: Path) -> None:
    engine = Power()
    found = report.evaluate_bundled(engine, data, engine)
    assert [(line.material, line.recordings) for line in found.lines] == [
        ("clips", 8),
        ("clips, cross-checked", 8),
        ("scenes", 2),
        ("scenes, cross-checked", 2),
        ("speech", 2),
        ("speech, cross-checked", 2),
    ]
    as_shipped, crossed = found.lines[0].plain, found.lines[1].plain
    assert as_shipped.clip_recall == 0.0  # the points are far too high,
    assert crossed.clip_recall == 1.0  # but each half sets them for the other
    assert found.figures["clip_recall"] == 1.0
    # The rain of both scenes, one of ten sounds: the wind behind it is too faint here.
    assert found.figures["scenes_sound_recall"] == 0.1
    assert found.figures["window_ms_ratio"] == 1.0
    assert "ten_class_clip_accuracy" not in found.figures  # the model lacks the ten classes
    assert "scenes_clip_recall" not in found.figures
    assert not found.seen
    assert [(tag.tag, tag.clips, tag.found) for tag in found.tags] == [
        ("Rain", 4, 0),
        ("Wind_noise", 4, 0),
        ("Speech", 2, 0),
    ]


def test_model_trained_on_recordings_keeps_its_figures(data: Path) -> None:
    engine = Power(source="infra/lab/training/power.py")
    found = report.evaluate_bundled(engine, data, Power())
    assert found.seen
    assert 0.05 < found.figures["window_ms_ratio"] < 20
    assert found.figures.keys() == {"clip_recall", "window_ms_ratio"}
    assert found.figures["clip_recall"] == 0.123


def test_tags_are_evaluated_at_their_points(data: Path) -> None:
    """Rain is reported in every clip of rain, and in one of wind; nothing is reported in speech."""
    engine = Power()
    tags = [msgspec.structs.replace(tag, point=0.9 if tag.name == "Speech" else 0.5) for tag in engine.manifest.tags]
    tags[2] = msgspec.structs.replace(tags[2], head=0)
    engine.manifest = msgspec.structs.replace(engine.manifest, tags=tuple(tags))
    loud = data / "sound" / "c0.ogg"
    soundfile.write(loud, 0.1 * np.random.default_rng(1).standard_normal(3 * RATE), RATE)
    found = report.evaluate_bundled(engine, data, engine).evaluation
    assert found is not None
    assert (found.recordings, found.how.partition(",")[0]) == (10, "8 clips of five seconds of 50 sounds")
    rain, wind, speech = (found.tags[name] for name in ("Rain", "Wind_noise", "Speech"))
    assert rain == TagEvaluation(4, 4, 5, 4, 0.8)
    assert (wind.clips, wind.found, wind.reported, wind.right) == (4, 3, 3, 3)
    assert (speech.clips, speech.found, speech.reported, speech.learnt) == (2, 0, 0, True)
    own = Power(report.OURS)
    remembered = report.evaluate_bundled(own, data, own).evaluation
    assert remembered is not None
    assert all(tag.learnt for tag in remembered.tags.values())
