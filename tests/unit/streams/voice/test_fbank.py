"""Filter-bank frames compared with their definition, frame by frame and bin by bin, and with known values."""

import math

import msgspec
import numpy as np
import pytest

from streams.models.protocol import Floats
from streams.voice.fbank import fbank
from streams.voice.speaker_manifest import FbankInput
from tests import naive
from tests.audio import noise
from tests.unit.streams.voice.speakers import TITANET
from topics.errors import AudioError

RATE = 16_000
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
