"""Simultaneous voices: where they are found, whose they are, and where the search is skipped."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

import infra.examples
from infra import models
from streams.models.manifest import Graph, Waveform
from streams.models.protocol import Floats
from streams.voice import overlap, overlap_manifest
from streams.voice.diarization import DiarizationTurn
from streams.voice.overlap import (
    OnnxOverlapDetector,
    find_overlaps,
    is_clear,
    overlap_probabilities,
)
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speech_segments import RATE
from topics.errors import EngineError

MANIFEST = OverlapManifest(
    "loudness",
    "1",
    "CC0-1.0",
    "here",
    Graph("model.onnx", "0" * 64),
    Waveform(RATE, 2 * RATE),
    first=80,
    hop=160,
    onset=0.5,
    point=0.3,
)
EXAMPLES = Path(infra.examples.__file__).parent


class Loudness:
    """Detects two voices by loudness: the probability is the root mean square."""

    manifest = MANIFEST

    def __init__(self) -> None:
        self.windows = 0

    def probabilities(self, samples: Floats) -> Floats:
        assert len(samples) == MANIFEST.input.samples
        self.windows += 1
        found: Floats = np.sqrt(np.mean(samples.reshape(-1, 160) ** 2, axis=1))
        return found


class Broken(Loudness):
    def probabilities(self, samples: Floats) -> Floats:
        raise EngineError("out of order")


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat noise of one level as clear speech."""
    monkeypatch.setattr(overlap, "is_clear", len)


def voices(*parts: tuple[float, float]) -> Floats:
    """Return consecutive noise of (seconds, level)."""
    rng = np.random.default_rng(0)
    pieces = [level * rng.choice((-1.0, 1.0), round(seconds * RATE)) for seconds, level in parts]
    return np.concatenate(pieces).astype(np.float32)


#: One voice is soft, two are loud: from 3.0 to 3.6 s and from 6.5 to 7.0 s.
TALK = voices((0.5, 0.001), (2.5, 0.1), (0.6, 0.8), (2.4, 0.1), (0.5, 0.001), (0.5, 0.7), (1.0, 0.1))
TURNS = [DiarizationTurn(0.5, 3.2, 0), DiarizationTurn(3.2, 6.0, 1), DiarizationTurn(6.5, 8.0, 2)]


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("block", [len(TALK), RATE, 4321])
def test_overlaps_name_nearest_other_speaker(block: int) -> None:
    found = find_overlaps(np.split(TALK, range(block, len(TALK), block)), Loudness(), TURNS)
    expected = [(3.0, 3.2, 0, 1), (3.2, 3.6, 1, 0), (6.5, 7.0, 2, 1)]
    assert [msgspec.structs.astuple(one) for one in found] == [pytest.approx(one, abs=0.02) for one in expected]


@pytest.mark.usefixtures("trusting")
def test_nearest_other_speaker_is_never_same_speaker() -> None:
    samples = voices((1.0, 0.1), (0.1, 0.001), (1.0, 0.1), (0.5, 0.9), (1.0, 0.1), (0.4, 0.001))
    turns = [(0.0, 0.5, 1), (0.5, 1.0, 2), (1.1, 1.5, 0), (1.6, 3.6, 0), (3.6, 3.7, 0), (3.9, 4.0, 3)]
    (found,) = find_overlaps([samples], Loudness(), [DiarizationTurn(*turn) for turn in turns])
    assert (found.speaker, found.other) == (0, 2)


@pytest.mark.usefixtures("trusting")
def test_overlap_needs_onset_threshold() -> None:
    samples = voices((0.5, 0.001), (2.0, 0.1), (0.5, 0.4), (2.0, 0.1))
    assert find_overlaps([samples], Loudness(), TURNS[:2]) == []


@pytest.mark.parametrize("turns", [[], [DiarizationTurn(0.0, 8.0, 0)], [TURNS[0], DiarizationTurn(3.2, 8.0, 0)]])
def test_detector_is_not_called_with_fewer_than_two_speakers(turns: list[DiarizationTurn]) -> None:
    assert find_overlaps([TALK], Broken(), turns) == []


@pytest.mark.usefixtures("trusting")
def test_detector_failure_is_raised() -> None:
    with pytest.raises(EngineError, match="out of order"):
        find_overlaps([TALK], Broken(), TURNS)


@pytest.mark.usefixtures("trusting")
def test_windows_without_turns_are_skipped() -> None:
    detector, silence = Loudness(), voices((60.0, 0.001))
    turns = [DiarizationTurn(60.5, 63.2, 0), DiarizationTurn(63.2, 66.0, 1)]
    (first, *_) = find_overlaps([silence, TALK], detector, turns)
    assert first.start_s == pytest.approx(63.0, abs=0.02)
    assert first.speaker == 0
    assert detector.windows <= 10


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("seconds", [0.01, 0.5, 1.0, 2.0, 3.0, 3.01])
def test_every_frame_has_probability(seconds: float) -> None:
    samples = voices((seconds, 0.5))
    turns = [DiarizationTurn(0.0, seconds, 0)]
    found = overlap_probabilities([samples], Loudness(), turns)
    assert found == pytest.approx(np.full(-(-len(samples) // 160), 0.5), abs=0.01)


def test_telephone_and_noisy_audio_is_not_clear() -> None:
    rng = np.random.default_rng(0)
    speech = np.repeat(rng.choice((0.0, 0.3), 100), 1600) * rng.normal(size=160_000)
    spectrum = np.fft.rfft(speech)
    spectrum[len(spectrum) // 2 :] = 0
    assert is_clear(speech.astype(np.float32))
    assert not is_clear(np.fft.irfft(spectrum).astype(np.float32))
    assert not is_clear((speech + 0.03 * rng.normal(size=160_000)).astype(np.float32))
    assert not is_clear(np.empty(0, np.float32))


def reading(name: str) -> Floats:
    samples, rate = soundfile.read(EXAMPLES / f"{name}.ogg", dtype="float32")
    assert rate == RATE
    found: Floats = samples[: 6 * RATE] / np.sqrt(np.mean(samples**2)) * np.float32(0.07)
    return found


def test_bundled_model_finds_overlapping_readers() -> None:
    detector = OnnxOverlapDetector(models.directory(models.OVERLAP))
    kim, sam = reading("kim"), reading("sam")
    both = kim[-2 * RATE :] + sam[: 2 * RATE]
    samples = np.concatenate((kim[: -2 * RATE], both, sam[2 * RATE :]))
    turn = len(kim) / RATE - 1
    turns = [DiarizationTurn(0.0, turn, 0), DiarizationTurn(turn, len(samples) / RATE, 1)]
    found = find_overlaps([samples], detector, turns)
    assert {(one.speaker, one.other) for one in found} <= {(0, 1), (1, 0)}
    assert sum(one.end_s - one.start_s for one in found) == pytest.approx(2.0, abs=0.7)
    assert all(turn - 1.2 <= one.start_s < one.end_s <= turn + 1.2 for one in found)
    alone = np.concatenate((kim, np.zeros(RATE // 4, np.float32), sam))
    at = len(kim) / RATE
    turns = [DiarizationTurn(0.0, at, 0), DiarizationTurn(at + 0.25, len(alone) / RATE, 1)]
    assert find_overlaps([alone], detector, turns) == []


def test_missing_or_damaged_model_is_a_one_line_error(tmp_path: Path) -> None:
    copy = tmp_path / "overlap"
    with pytest.raises(EngineError, match=r"manifest\.json: No such file"):
        OnnxOverlapDetector(copy)
    shutil.copytree(models.directory(models.OVERLAP), copy)
    content = (copy / "model.onnx").read_bytes()
    (copy / "model.onnx").write_bytes(content[:-1])
    with pytest.raises(EngineError, match=r"^[^\n]*SHA-256 differs\)$"):
        OnnxOverlapDetector(copy)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"input": Waveform(8000, 2 * RATE)}, "input is"),
        ({"input": Waveform(RATE, 2 * RATE + 1)}, "input is"),
        ({"input": Waveform(RATE, 61 * RATE)}, "input is"),
        ({"hop": 0}, "first and hop are"),
        ({"first": -1}, "first and hop are"),
        ({"point": 0.6}, "point and onset are"),
        ({"onset": 1.0}, "point and onset are"),
        ({"graph": Graph("../model.onnx", "0" * 64)}, "graph"),
    ],
)
def test_invalid_manifest_is_rejected(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(MANIFEST, **change)))
    with pytest.raises(EngineError, match=fault):
        overlap_manifest.read(tmp_path)
