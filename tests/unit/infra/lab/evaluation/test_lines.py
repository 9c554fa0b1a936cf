"""Channels: what they take away is gone, what they leave is the voice, and the bundled model knows it again."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from infra import models
from infra.lab.evaluation import lines
from streams.models.protocol import Floats
from streams.voice.speaker_engine import OnnxSpeakerEngine
from tests.audio import RATE
from tests.recordings import SPEECH


def reader(name: str) -> Floats:
    samples: Floats = soundfile.read(SPEECH / f"{name}.ogg", dtype="float32")[0]
    return samples


def power(samples: Floats, low: float, high: float) -> float:
    hertz = np.fft.rfftfreq(len(samples), 1 / RATE)
    return float((np.abs(np.fft.rfft(samples)) ** 2)[(hertz >= low) & (hertz < high)].sum())


@pytest.mark.parametrize("name", sorted(lines.CHANNELS))
def test_a_channel_keeps_length_and_voice(name: str) -> None:
    samples = reader("103-1240-0000")[: 4 * RATE]
    heard, again = (lines.CHANNELS[name](samples, np.random.default_rng(1)) for _ in range(2))
    assert (heard.dtype, heard.shape) == (samples.dtype, samples.shape)
    assert (heard == again).all()
    assert power(heard, 300, 3400) > 0.002 * power(samples, 300, 3400)
    narrow = "telephone" in name
    assert (power(heard, 4300, 7600) < 1e-6 * power(heard, 300, 3400)) == narrow


def test_a_voice_is_known_through_a_telephone() -> None:
    """These readers taught the means, so this says that narrow bands are treated, not how well."""
    engine = OnnxSpeakerEngine(models.directory(models.SPEAKERS))
    rng = np.random.default_rng(0)
    names = ["103-1240-0000", "1040-133433-0000", "1069-133699-0000", "1081-125237-0000"]
    pieces = [np.split(reader(name)[: 8 * RATE], 2) for name in names]
    plain = np.array([engine.embed(first) for first, _ in pieces])
    called = np.array([engine.embed(lines.telephone(second, rng)) for _, second in pieces])
    cosines = plain @ called.T
    assert (cosines.argmax(axis=1) == np.arange(len(names))).all()
    assert np.diag(cosines).min() > 0.2
    # Without a mean of their own all voices through telephones are alike.
    assert np.abs(called @ called.T - np.eye(len(names))).max() < 0.45


def test_soft_and_noisy() -> None:
    samples = reader("103-1240-0000")
    heard = lines.quiet(samples, np.random.default_rng(0))
    assert 10 * np.log10(np.mean(heard**2) / np.mean(samples**2)) == pytest.approx(-20 + 0.14, abs=0.2)
