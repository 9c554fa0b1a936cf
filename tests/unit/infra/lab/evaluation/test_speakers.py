"""Equal error rates: against the definition, on vectors made up, and over a folder of recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from infra.lab.evaluation.channels import through_channel
from infra.lab.evaluation.speakers import cross_pairs, equal_error, evaluate_speakers, plain_pairs
from streams.models.manifest import Graph
from streams.models.protocol import Floats
from streams.voice.manifest import SpeakerManifest, UtteranceInput

RATE = 16_000


def naive(same: list[float], different: list[float]) -> float:
    """Every score as a threshold, both shares counted; the threshold where they differ least."""
    found = []
    for threshold in sorted({*same, *different}):
        missed = sum(score < threshold for score in same) / len(same)
        accepted = sum(score >= threshold for score in different) / len(different)
        found.append((abs(missed - accepted), (missed + accepted) / 2))
    return min(found, key=lambda pair: pair[0])[1]


def scores(*values: float) -> Floats:
    return np.array(values, np.float32)


def test_equal_error_is_the_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        same = np.round(rng.normal(1.0, 1.0, rng.integers(1, 40)), 1).astype(np.float32)
        different = np.round(rng.normal(0.0, 1.0, rng.integers(1, 40)), 1).astype(np.float32)
        assert equal_error(same, different)[0] == pytest.approx(naive(same.tolist(), different.tolist()))


def test_equal_error_of_scores_apart_overlapping_and_upside_down() -> None:
    rate, threshold = equal_error(scores(0.8, 0.9), scores(0.1, 0.2))
    assert rate == 0.0
    assert threshold == pytest.approx(0.8)
    assert equal_error(scores(0.3, 0.9), scores(0.1, 0.5))[0] == 0.5
    assert equal_error(scores(0.1, 0.2), scores(0.8, 0.9))[0] == 1.0
    with pytest.raises(ValueError, match="needs pairs"):
        equal_error(scores(0.3), scores())


def test_pairs() -> None:
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32)
    names = np.array(["a", "a", "b"])
    same, different = plain_pairs(vectors, names)
    assert same.tolist() == pytest.approx([0.6])
    assert sorted(different.tolist()) == pytest.approx([0.0, 0.8])
    same, different = cross_pairs(vectors, vectors[::-1], names)
    assert sorted(same.tolist()) == pytest.approx([0.6, 0.8])
    assert len(different) == 4


class Pitch:
    """Knows a voice by the share of each eighth of the band in its power."""

    def __init__(self) -> None:
        graph = Graph("model.onnx", "0" * 64)
        given = UtteranceInput(RATE, RATE // 2, 30 * RATE)
        self.manifest = SpeakerManifest("pitch", "1", "CC0-1.0", "here", graph, given, 8, 0.5)

    def embed(self, samples: Floats) -> Floats:
        power = np.abs(np.fft.rfft(samples))[1 : 8 * (len(samples) // 16)] ** 2
        shares = np.array([part.sum() for part in np.array_split(power, 8)], np.float32)
        unit: Floats = shares / np.linalg.norm(shares)
        return unit


def spoken(folder: Path, voices: dict[str, tuple[float, ...]]) -> Path:
    """Write utterances that are tones in noise: of each voice its pitch in Hz and the seconds of each utterance."""
    rng = np.random.default_rng(0)
    lines = ["file,part,speaker,sex,seconds,licence"]
    for voice, (pitch, *lengths) in voices.items():
        for number, seconds in enumerate(lengths):
            t = np.arange(int(seconds * RATE)) / RATE
            samples = 0.3 * np.sin(2 * np.pi * pitch * t) + 0.01 * rng.standard_normal(len(t))
            soundfile.write(folder / f"{voice}-{number}.ogg", samples, RATE)
            lines.append(f"{voice}-{number},test,{voice},F,{seconds},CC0-1.0")
    (folder / "utterances.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_folder_is_judged(tmp_path: Path) -> None:
    folder = spoken(tmp_path, {"a": (300.0, 8.5), "b": (2400.0, 8.5), "c": (4700.0, 2.0), "d": (6500.0, 3.0, 1.0)})
    found = evaluate_speakers(Pitch(), folder)
    assert (found.eer_4s, found.eer_whole) == (0.0, 0.0)
    # Two halves of a, two of b, two utterances of d; c is too short to be halved.
    assert (found.speakers, found.pairs_4s, found.pairs_whole) == (4, 2, 3)
    assert evaluate_speakers(Pitch(), folder) == found
    assert evaluate_speakers(Pitch(), folder, ["a", "b"]).speakers == 2


def test_a_channel_changes_spectrum_noise_and_level_but_not_the_length() -> None:
    samples = np.sin(np.arange(RATE) * 0.3).astype(np.float32)
    heard = [through_channel(samples, RATE, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert {len(one) for one in heard} == {RATE}
    assert (heard[0] == heard[1]).all()
    assert not np.allclose(heard[0], heard[2])
    assert all(0.1 < np.abs(one).max() <= 1.0 for one in heard)
    assert np.isfinite(through_channel(np.zeros(RATE, np.float32), RATE, np.random.default_rng(3))).all()
