"""Recordings of strangers, decoded whole."""

from __future__ import annotations

import io

import numpy as np
import pytest

from infra.engines import recording
from tests.audio import encoded, sine
from topics.errors import AudioError


@pytest.mark.parametrize(("rate", "form"), [(16_000, "WAV"), (44_100, "OGG"), (8_000, "FLAC")])
def test_any_rate_and_container_becomes_mono_at_the_rate_that_is_asked_for(rate: int, form: str) -> None:
    tone = 0.5 * sine(2.0, rate=rate)
    found = recording.load(io.BytesIO(encoded(np.stack((tone, np.zeros_like(tone)), axis=1), rate, form)), 16_000)
    assert found.dtype == np.float32
    assert found.ndim == 1
    assert len(found) == pytest.approx(32_000, abs=2)
    assert np.argmax(np.abs(np.fft.rfft(found))) == pytest.approx(880, abs=1)
    assert np.abs(found).max() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_what_takes_too_long_to_decode_is_refused(monkeypatch: pytest.MonkeyPatch, rate: int) -> None:
    # Samples of silence cost next to no bytes.
    silence = io.BytesIO(encoded(np.zeros((20 * rate, 8), np.int16), rate, "FLAC"))
    monkeypatch.setattr(recording, "CPU_SECONDS", 0.001)
    with pytest.raises(AudioError, match="within its limits"):
        recording.load(silence, 16_000)


def test_what_is_no_audio_or_too_long_is_refused() -> None:
    with pytest.raises(AudioError, match="no audio file"):
        recording.load(io.BytesIO(b"no audio at all" * 10), 16_000)
    with pytest.raises(AudioError, match="longer than 600 s"):
        recording.load(io.BytesIO(encoded(np.zeros(1000 * (recording.LONGEST_S + 1), np.int16), 1000)), 16_000)
