"""The speaker net's training: maps as framing makes them, pooled as the graph pools, a projection that separates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from infra.lab.evaluation import utterances
from infra.lab.evaluation.utterances import SAMPLE_RATE, Utterance, at_speed
from infra.lab.training import speaker, speaker_graph, speaker_projection, speaker_trunk
from infra.lab.training.speaker_graph import Projection
from infra.lab.training.speaker_statistics import Crops, crops
from infra.models.front_end import FRONT_END
from streams.audio.logmel import log_mel_frames
from tests.audio import noise, sine
from topics.errors import AudioError


@pytest.fixture(scope="module")
def trunk() -> onnxruntime.InferenceSession:
    return speaker_trunk.session()


@pytest.fixture(scope="module")
def features(trunk: onnxruntime.InferenceSession) -> int:
    return crops(trunk, [Utterance("a", "F", noise(SAMPLE_RATE))], 100, channel=False, seed=0).statistics.shape[1]


def test_the_log_mel_map_is_the_framing_of_levelled_samples(trunk: onnxruntime.InferenceSession) -> None:
    samples = noise(SAMPLE_RATE)
    image = trunk.run(None, {"samples": samples[np.newaxis]})[0][0, 0]
    levelled = samples * np.float32(speaker_trunk.LEVEL / np.sqrt(np.mean(samples**2)))
    np.testing.assert_allclose(image, log_mel_frames(FRONT_END, levelled), atol=1e-4)


def test_crops_of_training_are_what_the_graph_pools(trunk: onnxruntime.InferenceSession, features: int) -> None:
    # One block and the samples that its last frame needs: the graph sees the same columns.
    samples = noise(round(0.975 * SAMPLE_RATE))
    trained = crops(trunk, [Utterance("a", "F", samples)], 100, channel=False, seed=0)
    rng = np.random.default_rng(1)
    layer = Projection(
        rng.standard_normal(features).astype(np.float32),
        rng.uniform(0.5, 2.0, features).astype(np.float32),
        rng.standard_normal((features, 16)).astype(np.float32),
    )
    graph = speaker_graph.build(layer).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    vector = session.run(None, {"samples": samples[np.newaxis]})[0][0]
    expected = (trained.statistics[0].astype(np.float32) - layer.mean) / layer.deviation @ layer.matrix
    # int8 weights and float16 statistics: the direction is that of the exact product.
    assert float(vector @ expected) / np.linalg.norm(expected) > 0.999
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_crops_depend_on_seed_and_channel_and_short_utterances_give_none(trunk: onnxruntime.InferenceSession) -> None:
    given = [Utterance("a", "F", noise(round(0.5 * SAMPLE_RATE))), Utterance("b", "M", noise(3 * SAMPLE_RATE))]
    plain, again, heard = (crops(trunk, given, 110, channel, seed=3) for channel in (False, False, True))
    assert set(plain.voices.tolist()) == {1}
    assert (plain.statistics == again.statistics).all()
    assert heard.statistics.shape == plain.statistics.shape
    assert not np.allclose(heard.statistics, plain.statistics, atol=0.1)


def test_the_projection_keeps_what_tells_voices_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker_projection, "COMPONENTS", 12)
    monkeypatch.setattr(speaker_projection, "DIMENSION", 3)
    rng = np.random.default_rng(0)
    # Voices differ in three features by little; seven others vary by much within each voice.
    centres = rng.standard_normal((40, 3))
    voices = np.repeat(np.arange(40), 5)
    rows = np.concatenate((centres[voices] + 0.3 * rng.standard_normal((200, 3)), 5 * rng.standard_normal((200, 9))), 1)
    layer = speaker_projection.learn([Crops(rows.astype(np.float16), voices)])
    found = (rows - layer.mean) / layer.deviation @ layer.matrix
    around = found - np.array([found[voices == voice].mean(axis=0) for voice in range(40)])[voices]
    assert (found.var(axis=0) / around.var(axis=0) > 5).all()


def test_held_out_readers_are_left_out_at_every_speed() -> None:
    read = [Utterance(name, "F", noise(round(0.1 * SAMPLE_RATE))) for name in "abc"]
    part = Crops(np.arange(8, dtype=np.float16).reshape(4, 2), np.array([0, 1, 1, 2]))
    later = Crops(part.statistics, part.voices + 3)
    kept = speaker.without_readers(read, [part, later], {"b"})
    assert [one.voices.tolist() for one in kept] == [[0, 2], [3, 5]]
    assert kept[0].statistics.tolist() == [[0, 1], [6, 7]]


def test_speed_moves_length_and_pitch() -> None:
    tone = sine(1.0, 400.0, SAMPLE_RATE)
    fast = at_speed(tone, 110)
    assert len(fast) == pytest.approx(SAMPLE_RATE / 1.1, abs=2)
    assert np.argmax(np.abs(np.fft.rfft(fast[:14_400]))) * SAMPLE_RATE / 14_400 == pytest.approx(440, abs=2)
    assert at_speed(tone, 100) is tone


def test_folds_hold_every_reader_once() -> None:
    names = [str(number) for number in range(10)]
    groups = utterances.folds(names, 3)
    assert sorted(len(group) for group in groups) == [3, 3, 4]
    assert sorted(name for group in groups for name in group) == sorted(names)
    assert utterances.folds(reversed(names), 3) == groups


def test_utterances_that_do_not_decode(tmp_path: Path) -> None:
    (tmp_path / "utterances.csv").write_text("file,part,speaker,sex,seconds,licence\none,p,7,F,1,CC0\n")
    with pytest.raises(AudioError, match=r"one\.ogg: "):
        utterances.read(tmp_path)
    soundfile.write(tmp_path / "one.ogg", np.zeros((8000, 2)), 8000)
    with pytest.raises(AudioError, match=r"one\.ogg: 2 channels at 8000 Hz, expected one at 16000"):
        utterances.read(tmp_path)
    soundfile.write(tmp_path / "one.ogg", np.zeros(8000), SAMPLE_RATE)
    assert [(one.speaker, len(one.samples)) for one in utterances.read(tmp_path)] == [("7", 8000)]
    assert utterances.read(tmp_path, ["8"]) == []
