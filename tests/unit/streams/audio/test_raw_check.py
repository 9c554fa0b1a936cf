"""What is declared raw PCM and begins like a container is refused; samples never are."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audio.raw_check import HEAD, check_beginning, check_floats, container_of
from tests.audio import encoded, muxed, noise, sine
from topics.errors import AudioError
from topics.media import parse

RATE = 16_000
RAW = parse(f"audio/x-raw; rate={RATE}; format=s16")


def made(muxer: str, codec: str, rate: int = 44_100) -> bytes:
    """Return a second of noise by FFmpeg."""
    return muxed(noise(rate), rate, muxer, codec)


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "wav": (lambda: encoded(noise(RATE)), "audio/wav"),
    "rf64": (lambda: encoded(noise(RATE), kind="RF64"), "audio/wav"),
    "w64": (lambda: encoded(noise(RATE), kind="W64"), "audio/wav"),
    "aiff": (lambda: encoded(noise(RATE), kind="AIFF"), "audio/aiff"),
    "ogg": (lambda: encoded(noise(RATE), kind="OGG"), "audio/ogg"),
    "flac": (lambda: encoded(noise(RATE), kind="FLAC"), "audio/flac"),
    "au": (lambda: encoded(noise(RATE), kind="AU"), "audio/au"),
    "caf": (lambda: encoded(noise(RATE), kind="CAF"), "audio/caf"),
    "mp3": (lambda: encoded(noise(RATE), kind="MP3"), "audio/mp3"),
    "mp3 of silence": (lambda: encoded(np.zeros(44_100), 44_100, "MP3"), "audio/mp3"),
    "tagged mp3": (lambda: made("mp3", "libmp3lame"), "audio/mp3"),
    "mp2": (lambda: made("mp2", "mp2"), ""),
    "aac": (lambda: made("adts", "aac"), "audio/aac"),
    "m4a": (lambda: made("ipod", "aac"), "audio/mp4"),
    "mov": (lambda: made("mov", "pcm_s16le"), "audio/mp4"),
    "webm": (lambda: made("webm", "libopus", 48_000), "audio/webm"),
    "mka": (lambda: made("matroska", "pcm_s16le"), "audio/webm"),
    "wma": (lambda: made("asf", "pcm_s16le"), "audio/x-ms-wma"),
    "wavpack": (lambda: made("wv", "wavpack"), "audio/wavpack"),
    "ts": (lambda: made("mpegts", "mp2"), ""),
    "flv": (lambda: made("flv", "aac"), ""),
    "avi": (lambda: made("avi", "pcm_s16le"), ""),
}


@pytest.mark.parametrize("name", list(FILES))
def test_containers_are_recognised(name: str) -> None:
    make, declare = FILES[name]
    data = make()
    found = container_of(data[:HEAD])
    assert found is not None
    assert found[1] == declare
    advice = f"declare {declare}" if declare else "decode it"
    with pytest.raises(AudioError, match=rf"declared audio/x-raw, .* but the data is .*: {advice}"):
        check_beginning(RAW, data)


def test_random_samples_are_no_container() -> None:
    for seed in range(2000):
        assert container_of(np.random.default_rng(seed).bytes(4096)) is None


@given(
    st.binary(min_size=1, max_size=8), st.sampled_from([b"", b"\xff\xfb\x90", b"\xff\xf1\x50\x80", b"\xff\xfb\x50\x3e"])
)
def test_constant_samples_are_no_container(sample: bytes, frame: bytes) -> None:
    assert container_of((frame or sample) * 8000) is None


@pytest.mark.parametrize("form", ["<i2", ">i2", "<f4", "u1"])
def test_tones_are_no_container(form: str) -> None:
    scale = {"f": 1.0, "i": 32767.0, "u": 127.0}[np.dtype(form).kind]
    for hertz in range(50, 8000, 53):
        samples = sine(0.3, hertz, RATE) * scale + (128 if form == "u1" else 0)
        assert container_of(samples.astype(form).tobytes()) is None


@pytest.mark.parametrize("form", ["f16le", "f16be", "f32le", "f32be"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1000.0])
def test_implausible_floats_are_refused(form: str, bad: float) -> None:
    declared = parse(f"audio/x-raw; rate={RATE}; format={form}; channels=2")
    code = f"{'<' if form.endswith('le') else '>'}f{int(form[1:3]) // 8}"
    check_floats(declared, np.array([0.0, -1.0, 60.0], code).tobytes())
    with pytest.raises(AudioError):
        check_floats(declared, np.array([0.0, bad, 60.0], code).tobytes())


def test_integers_are_always_plausible() -> None:
    check_floats(RAW, b"\xff" * 1001)
