"""WAV files of 16-bit integers: read as the decoder reads them, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from streams.audio import wav
from streams.audio.decode import decode_chunk
from tests.audio import encoded
from topics.media import parse

RATE = 8000


def saved(channels: int = 1, subtype: str = "PCM_16", kind: str = "WAV") -> bytes:
    return encoded(np.random.default_rng(1).uniform(-1, 1, (999, channels)), RATE, kind, subtype)


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_it_is_read_as_the_decoder_reads_it(channels: int) -> None:
    data = saved(channels)
    found, decoded = wav.read_plain(data), decode_chunk(data, parse("audio/wav"))
    assert found is not None
    assert found.rate == decoded.rate == RATE
    assert np.array_equal(found.samples, decoded.samples)
    assert wav.looks_plain(data)


@pytest.mark.parametrize(
    ("subtype", "kind"), [("PCM_24", "WAV"), ("FLOAT", "WAV"), ("PCM_U8", "WAV"), ("PCM_16", "AIFF")]
)
def test_any_other_file_is_none(subtype: str, kind: str) -> None:
    assert wav.read_plain(saved(subtype=subtype, kind=kind)) is None


def test_damage_is_none_or_shorter() -> None:
    """Nothing of it is raised."""
    whole, random = saved(), np.random.default_rng(2)
    lengths: list[int | None] = []
    for _ in range(500):
        data = np.frombuffer(whole, np.uint8).copy()
        data[random.integers(0, 48, 3)] = random.integers(0, 256, 3)
        found = wav.read_plain(data[: random.integers(0, len(data) + 1)].tobytes())
        lengths.append(None if found is None else len(found.samples))
    assert None in lengths
    assert 100 < max(filter(None, lengths)) <= 999
    for length in range(44, 60):
        found = wav.read_plain(whole[:length])
        assert (0 if found is None else len(found.samples)) == (length - 44) // 2


def test_chunks_before_the_samples_are_passed_over_up_to_a_bound() -> None:
    """Millions of empty ones would otherwise keep an interpreter busy for seconds."""
    data = saved()
    plain, odd = wav.read_plain(data), b"LIST\x03\0\0\0abc\0"
    assert plain is not None
    for count, read in ((1, True), (wav.MAX_CHUNKS - 2, True), (wav.MAX_CHUNKS, False)):
        found = wav.read_plain(data[:36] + odd * count + data[36:])
        assert (found is not None) is read
        assert found is None or np.array_equal(found.samples, plain.samples)


def test_what_is_written_is_read_again() -> None:
    samples = np.array([0, 0.5, -1, 2, -2], np.float32)
    found = wav.read_plain(wav.wav_file(wav.to_pcm16(samples), RATE))
    assert found is not None
    assert found.samples.tolist() == wav.from_pcm16(wav.to_pcm16(samples)).tolist()
    assert found.samples.tolist() == pytest.approx([0, 0.5, -1, 1, -1], abs=1e-4)
