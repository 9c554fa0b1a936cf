"""What phones and browsers record is decoded where the extra is installed; where it is not, the error names it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streams.audio import container
from streams.audio.decode import AudioFile
from streams.decoders.first_second import probe_recording
from streams.decoders.pool import DecoderPool
from streams.models.protocol import Floats
from tests.audio import encoded, sine
from topics import media
from topics.errors import AudioError, AudioTooLong

RATE = 48_000
SECONDS = 3.0
#: Name, container of ours, muxer and encoder of FFmpeg.
KINDS = {
    "phone memo": ("mp4", "ipod", "aac"),
    "video of a phone": ("mp4", "mp4", "aac"),
    "QuickTime": ("mp4", "mov", "pcm_s16le"),
    "lossless memo": ("mp4", "ipod", "alac"),
    "3GP": ("mp4", "3gp", "aac"),
    "browser": ("matroska", "webm", "libopus"),
    "MKA": ("matroska", "matroska", "flac"),
    "WMA": ("asf", "asf", "wmav2"),
    "AAC": ("aac", "adts", "aac"),
    "AC-3": ("ac3", "ac3", "ac3"),
    "WavPack": ("wavpack", "wv", "wavpack"),
}
ANY = media.parse("application/octet-stream")


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    pool = DecoderPool()
    yield pool
    pool.stop()


def muxed(muxer: str, encoder: str, *, video: bool = False) -> bytes:
    """A tone of three seconds, its second channel half as loud."""
    av = pytest.importorskip("av", reason="the extra media is not installed")
    tone = (0.5 * sine(SECONDS, 440, RATE)).astype(np.float32)
    file = io.BytesIO()
    with av.open(file, "w", format=muxer) as out:
        if video:
            picture = out.add_stream("mpeg4", rate=5)
            picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
        stream = out.add_stream(encoder, rate=RATE, layout="stereo")
        stream.bit_rate = 128_000
        if video:
            for _ in range(15):
                out.mux(picture.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")))
        samples = np.stack((tone, tone / 2))
        for at in range(0, samples.shape[1], 4800):
            part = np.ascontiguousarray(samples[:, at : at + 4800])
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = RATE, at
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


def samples(audio: AudioFile) -> Floats:
    with audio:
        return np.concatenate(list(audio.blocks()))


@pytest.mark.parametrize("kind", KINDS)
def test_what_phones_and_browsers_record(pool: DecoderPool, kind: str) -> None:
    name, muxer, encoder = KINDS[kind]
    data = muxed(muxer, encoder)
    assert container.detect(data[: container.HEAD]) == name
    audio = pool.open_file(io.BytesIO(data), ANY)
    assert (audio.rate, audio.channels) == (RATE, 2)
    got = samples(audio)
    assert len(got) / RATE == pytest.approx(SECONDS, abs=0.15)
    # The tone, wherever its beginning is; a coder's delay may be part of it.
    middle = got[RATE // 2 : -RATE // 2]
    assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(0.375, rel=0.05)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * RATE / len(middle) == pytest.approx(440, abs=2)


def test_the_sound_of_a_video(pool: DecoderPool) -> None:
    got = samples(pool.open_file(io.BytesIO(muxed("mp4", "aac", video=True)), ANY))
    assert len(got) / RATE == pytest.approx(SECONDS, abs=0.15)


def test_a_probe_says_how_the_file_is_called(pool: DecoderPool) -> None:
    for name, muxer, encoder in KINDS.values():
        result = probe_recording(io.BytesIO(muxed(muxer, encoder)), None, pool.open_file)
        assert (result.format, result.rate, result.channels) == (name, RATE, 2)
        assert media.parse(result.content_type).container == name


@pytest.mark.parametrize("kind", ["AU", "CAF"])
def test_what_needs_no_extra(pool: DecoderPool, kind: str) -> None:
    tone = 0.5 * sine(SECONDS, 440, RATE)
    audio = pool.open_file(io.BytesIO(encoded(tone, RATE, kind, "PCM_16")), media.parse(f"audio/{kind.lower()}"))
    assert np.abs(samples(audio) - tone).max() < 1e-4


def fault(pool: DecoderPool, data: bytes, declared: str = "application/octet-stream") -> str:
    with pytest.raises(AudioError) as raised:
        samples(pool.open_file(io.BytesIO(data), media.parse(declared)))
    return str(raised.value)


def test_faults_have_names(pool: DecoderPool) -> None:
    memo = muxed("ipod", "aac")
    assert "cannot be read" in fault(pool, memo[: len(memo) // 2])
    assert "cannot be read" in fault(pool, memo[:40])
    assert "but the data is MP4" in fault(pool, memo, "audio/webm")
    assert "declared audio/mp4, but the data is WAV" in fault(pool, encoded(sine(1)), "audio/mp4")
    assert "cannot be read" in fault(pool, b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 8)
    with pytest.raises(AudioTooLong, match="longer than 2 s"):
        samples(pool.open_file(io.BytesIO(muxed("ac3", "ac3")), ANY, 2))


def test_a_video_without_sound(pool: DecoderPool) -> None:
    av = pytest.importorskip("av", reason="the extra media is not installed")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        picture = out.add_stream("mpeg4", rate=5)
        picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
        out.mux(picture.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")))
        out.mux(picture.encode(None))
    assert fault(pool, file.getvalue()) == "the data holds no audio"


def test_damage_of_any_kind_is_an_answer(pool: DecoderPool) -> None:
    random = np.random.default_rng(4)
    whole = [muxed(muxer, encoder) for _, muxer, encoder in KINDS.values()]
    for number in range(60):
        data = np.frombuffer(whole[number % len(whole)], np.uint8).copy()
        where = random.integers(0, len(data), 1 + number % 20)
        data[where] = random.integers(0, 256, len(where))
        try:
            got = samples(pool.open_file(io.BytesIO(data[: random.integers(1, len(data))].tobytes()), ANY))
        except AudioError:
            continue
        assert np.isfinite(got).all()


def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "import sys\nsys.modules['av'] = None\nfrom streams.decoders import zygote\nzygote.main()\n"
    )
    pool = DecoderPool(command=(sys.executable, str(tmp_path / "bare.py")))
    head = b"\0\0\0\x20ftypM4A " + bytes(64)
    assert fault(pool, head) == (
        "MP4 (M4A, MOV, 3GP) is read with an extra of this service: "
        "make extra NAME=media, or pip install 'earshot-server[media]'"
    )
    assert len(samples(pool.open_file(io.BytesIO(encoded(sine(1))), ANY))) == 16_000
    pool.stop()
