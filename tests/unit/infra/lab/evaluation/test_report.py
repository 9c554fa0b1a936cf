"""The report of a model on a made-up data directory: two sounds, a little speech, one scene per half."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from infra.lab.evaluation import report, scenes
from infra.lab.evaluation.scenes import RATE, Setting
from streams.models.manifest import Manifest, ModelTag
from streams.models.protocol import Floats, SoundEngine
from tests.unit.infra.lab.evaluation.engines import Levels

pytestmark = pytest.mark.slow


class Power(SoundEngine):
    """Scores rain at high power, speech at low power, wind near silence."""

    def __init__(self) -> None:
        names = ("Rain", "Wind_noise", "Speech")
        tags = tuple(ModelTag(name, "Test", (n,), 0.9) for n, name in enumerate(names))
        base = Levels(0.5, 0.5).manifest
        self.manifest: Manifest = msgspec.structs.replace(base, tags=tags, classes=names)

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
