"""Long scenes: the same each time, and what is noted is what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from infra.lab.evaluation import scenes
from infra.lab.evaluation.labels import LABELS
from infra.lab.evaluation.recordings import Recording, Span
from infra.lab.evaluation.scenes import RATE, SECONDS, Setting
from streams.audio.decode import DecodedAudio
from topics.errors import BadRequest


def clip(label: str, seconds: int, seed: int) -> Recording:
    noise = np.random.default_rng(seed).standard_normal(seconds * RATE).astype(np.float32)
    return Recording(label, label, (Span(LABELS[label]),), DecodedAudio(RATE, 0.1 * noise), label)


@pytest.fixture
def one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "SETTINGS", (Setting("room", ("rain", "wind"), ("dog", "cat")),))


@pytest.mark.usefixtures("one_setting")
def test_a_scene() -> None:
    sounds = [clip("rain", 5, 1), clip("dog", 5, 2)]
    (scene,) = scenes.build_scenes(sounds, [clip("speech", 9, 3)])
    samples = scene.decode().samples
    assert len(samples) == SECONDS * RATE
    assert samples.tobytes() == scenes.build_scenes(sounds, [clip("speech", 9, 3)])[0].decode().samples.tobytes()
    assert {span.meaning for span in scene.spans} == {LABELS[label] for label in ("rain", "dog", "speech")}
    dogs = [span for span in scene.spans if span.meaning == LABELS["dog"]]
    assert len(dogs) == SECONDS // scenes.PART - 2
    levels = 10 * np.log10(np.square(samples).reshape(SECONDS, RATE).mean(axis=1))
    for dog in dogs:
        assert dog.end - dog.start == pytest.approx(5.0)
        assert levels[int(dog.start) + 1 : int(dog.end)].min() > scenes.EVENT_DB[0] - 2
    # The last part has neither background nor events, and its second half hums.
    assert levels[-scenes.PART : -scenes.PART // 2 - 1].max() < -65
    assert -50 < levels[-scenes.PART // 2 :].mean() < -40
    assert max(span.end for span in scene.spans) <= SECONDS - scenes.PART


@pytest.mark.usefixtures("one_setting")
def test_labels_that_nobody_recorded() -> None:
    with pytest.raises(BadRequest, match="scenes need a clip of dog or cat"):
        scenes.build_scenes([clip("rain", 5, 1)], [clip("speech", 9, 3)])


def test_settings_name_known_labels() -> None:
    for setting in scenes.SETTINGS:
        assert {*setting.background, *setting.events} <= LABELS.keys()
