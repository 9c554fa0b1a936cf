"""Samples of voices: filter-bank frames against their definition, excerpts of speakers, and levels."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.models.protocol import Floats
from streams.voice import loudness as levels
from streams.voice.diarization import DiarizationTurn
from streams.voice.excerpts import MAX_EXCERPT_S, MAX_SPEAKERS, excerpts
from streams.voice.fbank import fbank
from streams.voice.speaker_manifest import FbankInput
from tests import naive
from tests.audio import RATE, noise
from tests.unit.streams.voice.speakers import TITANET
from topics.errors import AudioError

KALDI = FbankInput(RATE, 8000, 160_000)
WESPEAKER = FbankInput(RATE, 8000, 160_000, window="hamming", scale=32768.0)
#: Subtracting the mean would remove the scale.
LOUD = msgspec.structs.replace(WESPEAKER, normalisation="none")
NEMO = msgspec.structs.replace(TITANET, max_samples=160_000)

#: The DC offset of a bad microphone.
OFFSET = np.float32(0.02)


def slow(front: FbankInput, samples: Floats) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Compute each frame and band separately, in doubles."""
    slaney = front.mel == "slaney"
    low, high = naive.mels(front.low_hz, slaney), naive.mels(front.high_hz or RATE / 2, slaney)
    edges = [low + (high - low) * k / (front.bands + 1) for k in range(front.bands + 2)]
    rows = []
    for start in range(0, len(samples) - 400 + 1, 160):
        x = [float(value) * front.scale for value in samples[start : start + 400]]
        if front.remove_dc:
            x = [value - sum(x) / 400 for value in x]
        x = [value - front.pre_emphasis * x[max(0, n - 1)] for n, value in enumerate(x)]
        period = 400 if front.window == "hann" else 399
        cosines = [math.cos(2 * math.pi * n / period) for n in range(400)]
        window = {
            "povey": [(0.5 - 0.5 * c) ** 0.85 for c in cosines],
            "hamming": [0.54 - 0.46 * c for c in cosines],
            "hann": [0.5 - 0.5 * c for c in cosines],
        }[front.window]
        power = np.abs(np.fft.fft(np.multiply(x, window), 512)) ** 2
        row = []
        for left, centre, right in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for k in range(257):
                at, a, b, c = naive.mels(k * RATE / 512, slaney), left, centre, right
                if slaney:
                    at, a, b, c = k * RATE / 512, *(naive.hertz(edge, slaney) for edge in (left, centre, right))
                weight = max(0.0, min((at - a) / (b - a), (c - at) / (c - b)))
                total += power[k] * weight * (2 / (c - a) if slaney else 1.0)
            row.append(math.log(total + 2**-24) if slaney else math.log(max(total, 1.1920929e-07)))
        rows.append(row)
    logs = np.array(rows)
    if front.normalisation != "none":
        logs = logs - logs.mean(axis=0)
    if front.normalisation == "mean-variance":
        logs = logs / (logs.std(axis=0, ddof=1) + 1e-5)
    return logs


@pytest.mark.parametrize("front", [KALDI, WESPEAKER, LOUD, NEMO], ids=["kaldi", "wespeaker", "no mean", "nemo"])
def test_frames_equal_their_definition(front: FbankInput) -> None:
    samples = OFFSET + noise(1400)
    got = fbank(front, samples)
    assert (got.dtype.name, got.shape) == ("float32", (7, 80))
    np.testing.assert_allclose(got, slow(front, samples), atol=2e-3)


def test_silence_is_finite() -> None:
    for front in (KALDI, NEMO):
        np.testing.assert_allclose(fbank(front, np.zeros(800, np.float32)), 0.0, atol=1e-4)


def test_less_than_one_frame_is_rejected() -> None:
    with pytest.raises(AudioError, match=r"399 samples .* a frame \(400\)"):
        fbank(KALDI, noise(399))


def cut(first: int, end: int) -> Floats:
    """Return samples whose value is their time in seconds."""
    return (np.arange(first, end) / RATE).astype(np.float32)


def made(lengths: list[tuple[int, float]]) -> list[DiarizationTurn]:
    """Return consecutive turns of (speaker, seconds), speakers numbered as they appear."""
    turns, at, numbers = [], 0.0, dict[int, int]()
    for speaker, seconds in lengths:
        turns.append(DiarizationTurn(at, at + seconds, numbers.setdefault(speaker, len(numbers))))
        at += seconds
    return turns


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 20)), max_size=10))
@settings(max_examples=25, deadline=None)
def test_excerpts_hold_all_speech_up_to_limit(lengths: list[tuple[int, float]]) -> None:
    turns = made(lengths)
    found = excerpts(turns, cut)
    assert len(found) == len({turn.speaker for turn in turns})
    for speaker, samples in enumerate(found):
        said = sum(turn.end_s - turn.start_s for turn in turns if turn.speaker == speaker)
        assert abs(len(samples) / RATE - min(said, MAX_EXCERPT_S)) < 0.01
        assert len(np.unique(samples)) == len(samples)


def test_longest_turns_are_excerpted_first() -> None:
    (found,) = excerpts(made([(0, 5.0), (0, 28.0), (0, 3.0)]), cut)
    assert (found[0], len(found)) == (5.0, 30 * RATE)
    assert np.array_equal(found[28 * RATE :], cut(0, 2 * RATE)), "then some of the next longest"


def test_only_most_active_speakers_get_excerpts() -> None:
    found = excerpts(made([(n, 1.0 + n / 100) for n in range(MAX_SPEAKERS + 3)]), cut)
    assert [len(samples) > 0 for samples in found] == [False] * 3 + [True] * MAX_SPEAKERS
    assert excerpts([], cut) == []


@pytest.mark.parametrize("cuts", [(), (1, 7, RATE)])
def test_soft_recordings_reach_target_level(cuts: tuple[int, ...]) -> None:
    soft = noise(2 * RATE) * np.float32(0.01)
    meter = levels.Meter()
    for block in np.split(soft, cuts):
        meter.add(block)
    loud = levels.amplified(soft, meter.gain)
    assert loud.dtype == np.float32
    assert 10 * np.log10(np.mean(loud.astype(np.float64) ** 2)) == pytest.approx(levels.LEVEL_DB, abs=0.1)
    np.testing.assert_allclose(levels.levelled(soft), loud, rtol=1e-5)


def test_peaks_are_limited() -> None:
    samples = noise(RATE) * np.float32(0.001)
    samples[100] = 0.5
    assert np.abs(levels.levelled(samples)).max() == 1.0


def test_loud_recordings_and_silence_are_unchanged() -> None:
    loud = noise(RATE)
    loud *= np.float32(0.3 / np.sqrt(np.mean(loud**2)))
    assert levels.levelled(loud) is loud
    assert levels.Meter().gain == 1.0
    assert not levels.levelled(np.zeros(RATE, np.float32)).any()


def test_gain_of_near_silence_is_limited() -> None:
    meter = levels.Meter()
    meter.add(noise(RATE) * np.float32(1e-6))
    assert 20 * np.log10(meter.gain) == pytest.approx(levels.MOST_DB)
