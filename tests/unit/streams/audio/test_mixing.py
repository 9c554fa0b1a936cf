"""Channels are averaged, unless they cancel each other, and the result does not depend on how audio is cut."""

import io

import numpy as np
import pytest

from streams.audio import pcm
from streams.audio.decode import decode_chunk, open_file
from streams.models.protocol import Floats
from tests.audio import encoded, noise
from topics.errors import AudioError
from topics.media import parse

RATE = 16_000
SOUND = noise(3 * RATE, 1)


def stereo(*channels: Floats) -> Floats:
    return np.stack(channels, axis=1).astype(np.float32)


@pytest.mark.parametrize(
    ("others", "channel"),
    [([-1.0], 0), ([-0.9], 0), ([-1.1], 0), ([-1.0, 0.0, 0.0], 0), ([0.0, -1.0, 1.0, -1.0], 0)],
    ids=["inverted", "quieter", "louder", "of four", "two pairs"],
)
def test_channels_that_cancel_each_other_are_heard(others: list[float], channel: int) -> None:
    frames = stereo(SOUND, *(factor * SOUND for factor in others))
    assert np.array_equal(pcm.to_mono(frames), frames[:, channel])


def test_loud_channel_is_chosen_among_silent_ones() -> None:
    frames = stereo(np.zeros_like(SOUND), 0.1 * SOUND, SOUND, -SOUND)
    assert np.array_equal(pcm.to_mono(frames), frames[:, 2])


@pytest.mark.parametrize(
    "other", [SOUND, 0.5 * SOUND, np.zeros_like(SOUND), noise(len(SOUND), 2), np.roll(SOUND, 7), -0.5 * SOUND]
)
def test_other_channels_are_averaged(other: Floats) -> None:
    frames = stereo(SOUND, other)
    assert np.array_equal(pcm.to_mono(frames), (frames[:, 0] + frames[:, 1]) / np.float32(2))
    assert pcm.to_mono(frames[:, :1].copy()).flags.c_contiguous


def test_only_cancelled_blocks_are_replaced() -> None:
    other = SOUND.copy()
    other[10_000:20_000] *= -1
    mono = pcm.to_mono(stereo(SOUND, other), 320)
    inverted = slice(10_240, 19_840)
    assert np.array_equal(mono[:9920], SOUND[:9920])
    assert np.array_equal(mono[inverted], SOUND[inverted])
    assert np.array_equal(mono[20_160:], SOUND[20_160:])


@pytest.mark.parametrize("frames", [0, 1, 319, 320, 321, 640])
def test_few_frames_are_mixed(frames: int) -> None:
    assert np.array_equal(pcm.to_mono(stereo(SOUND, -SOUND)[:frames], 320), SOUND[:frames])


def test_mix_is_the_same_however_blocks_are_joined() -> None:
    """Channels that nearly cancel each other are at the limit in some blocks."""
    frames = stereo(SOUND, -0.74 * SOUND + 0.1 * noise(len(SOUND), 3))
    whole = pcm.to_mono(frames, 320)
    averaged = (frames[:, 0] + frames[:, 1]) / np.float32(2)
    chosen = (whole.reshape(-1, 320) != averaged.reshape(-1, 320)).any(axis=1)
    assert 10 < chosen.sum() < len(chosen) - 10, "the limit lies elsewhere"
    for size in (320, 960, 6400):
        parts = [pcm.to_mono(frames[start : start + size], 320) for start in range(0, len(frames), size)]
        assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG"])
def test_inverted_channel_of_a_file_is_heard(kind: str) -> None:
    data = encoded(stereo(SOUND, -SOUND), RATE, kind)
    found = decode_chunk(data, parse("application/octet-stream")).samples
    assert np.std(found) == pytest.approx(np.std(SOUND), rel=0.2)


@pytest.mark.parametrize("scale", [2000.0, 32768.0, 2.0**31])
@pytest.mark.parametrize("form", ["raw", "WAV"])
def test_floats_in_the_scale_of_integers_are_refused(scale: float, form: str) -> None:
    samples = (SOUND * scale).astype("<f4")
    media = parse(f"audio/x-raw; rate={RATE}; format=f32" if form == "raw" else "audio/wav")
    data = samples.tobytes() if form == "raw" else encoded(samples, RATE, "WAV", "FLOAT")
    with pytest.raises(AudioError, match=r"a float sample is -?\d.*, and full scale is -1 to 1 .* divide them"):
        decode_chunk(data, media)


def test_floats_above_full_scale_pass() -> None:
    data = (SOUND * 100).astype("<f4").tobytes()
    media = parse(f"audio/x-raw; rate={RATE}; format=f32")
    assert np.abs(decode_chunk(data, media).samples).max() > 5


def test_raw_file_is_mixed_in_blocks_of_its_positions() -> None:
    frames = stereo(SOUND, -0.74 * SOUND + 0.1 * noise(len(SOUND), 3))
    media = parse(f"audio/x-raw; rate={RATE}; format=f32; channels=2")
    for block in (1, 3000, 1 << 19):
        with open_file(io.BytesIO(frames.astype("<f4").tobytes()), media, block_samples=block) as audio:
            assert np.array_equal(np.concatenate(list(audio.blocks())), pcm.to_mono(frames, 320))
