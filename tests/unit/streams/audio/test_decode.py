"""Decoding: every container, detected by content, in bounded memory, with an AudioError for every fault."""

import io
import struct
from functools import cache

import av
import numpy as np
import pytest

from streams.audio import container, decode
from streams.audio.decode import AudioFile, decode_chunk, open_file
from streams.audio.sources import GuardedSource
from streams.models.protocol import Floats
from tests.audio import encoded
from topics.errors import AudioError, AudioTooLong
from topics.media import parse

ANY = parse("application/octet-stream")
RATE = 24_000
#: By content type.
KINDS = {
    "audio/wav": ("WAV", "PCM_16"),
    "audio/x-wav": ("WAV", "FLOAT"),
    "audio/wavex": ("WAVEX", "PCM_24"),
    "audio/rf64": ("RF64", "PCM_16"),
    "audio/mpeg": ("MP3", "MPEG_LAYER_III"),
    "audio/ogg": ("OGG", "VORBIS"),
    "audio/opus": ("OGG", "OPUS"),
    "audio/flac": ("FLAC", "PCM_16"),
    "audio/aiff": ("AIFF", "PCM_16"),
    "audio/au": ("AU", "PCM_16"),
    "audio/caf": ("CAF", "PCM_16"),
}
LOSSY = {"audio/mpeg", "audio/ogg", "audio/opus"}


def chirp(seconds: float = 1.5) -> Floats:
    """Return two different channels, float32[n, 2]."""
    t = np.arange(int(RATE * seconds)) / RATE
    return np.stack((0.5 * np.sin(900 * t * (1 + t)), 0.25 * np.sin(5000 * t)), axis=1).astype(np.float32)


@cache
def chirps(content_type: str, seconds: float = 1.5) -> bytes:
    kind, subtype = KINDS[content_type]
    return encoded(chirp(seconds), RATE, kind, subtype)


@pytest.mark.parametrize("content_type", KINDS)
def test_every_container_is_decoded(content_type: str) -> None:
    data, want = chirps(content_type), chirp().mean(axis=1)
    for media in (parse(content_type), ANY):
        pcm = decode_chunk(data, media)
        # Opus has one rate.
        rate, samples = (48_000, pcm.samples[::2]) if content_type == "audio/opus" else (RATE, pcm.samples)
        assert (pcm.rate, samples.dtype.name, samples.ndim) == (rate, "float32", 1)
        assert len(samples) == len(want)
        # Opus fades at the end of a file.
        error = np.abs(samples - want)[:-500].max()
        assert error < (0.1 if content_type in LOSSY else 1e-4)


@pytest.mark.parametrize("content_type", KINDS)
def test_samples_ignore_block_size_and_trailing_zeros(content_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = chirps(content_type)
    want = decode_chunk(data, ANY).samples
    assert np.array_equal(decode_chunk(data.ljust(1 << 20, b"\0"), ANY).samples[: len(want)], want)
    monkeypatch.setattr(decode, "BLOCK_SAMPLES", 6000)
    blocks = list(open_file(io.BytesIO(data), ANY).blocks())
    assert max(map(len, blocks)) <= 3000
    assert np.array_equal(np.concatenate(blocks), want)


def test_raw_audio_is_decoded() -> None:
    media = parse("audio/x-raw; rate=8000; format=s16le; channels=2")
    pcm = decode_chunk(np.array([[16384, 0], [-32768, -32768]], "<i2").tobytes(), media)
    assert (pcm.rate, pcm.samples.tolist()) == (8000, [0.25, -1.0])


def test_empty_data_and_bare_header_are_rejected() -> None:
    nothing = dict.fromkeys([*KINDS, "application/octet-stream", "audio/x-raw; rate=8000; format=s16"], b"")
    headers = {f"audio/{kind}": encoded(np.empty((0, 1)), RATE, kind.upper()) for kind in ("wav", "aiff", "ogg", "au")}
    # libsndfile writes nothing for a FLAC without samples. Its first block of metadata is also the last.
    flac = flac_claiming(0)[:42]
    headers["audio/flac"] = flac[:4] + b"\x80" + flac[5:]
    for declared, data in (*nothing.items(), *headers.items()):
        with pytest.raises(AudioError, match="holds no audio"):
            decode_chunk(data, parse(declared))


@pytest.mark.parametrize(
    ("declared", "content", "message"),
    [
        ("audio/mp3", "audio/wav", "declared audio/mp3, but the data is WAV"),
        ("audio/wav", "audio/mpeg", "declared audio/wav, but the data is MP3"),
        ("audio/flac", "audio/opus", "declared audio/flac, but the data is Ogg"),
        ("audio/ogg", "audio/flac", "declared audio/ogg, but the data is FLAC"),
        ("audio/wav", "audio/aiff", "declared audio/wav, but the data is AIFF"),
    ],
)
def test_mismatched_content_type_is_rejected(declared: str, content: str, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        decode_chunk(chirps(content), parse(declared))


def test_unsupported_file_is_rejected() -> None:
    for data in (bytes(5000), b"hello, this is text", b"RIFF\0\0\0\0AVI LIST", b"I"):
        assert container.detect(data) is None
        with pytest.raises(AudioError, match="is not a supported audio file"):
            decode_chunk(data, ANY)


@pytest.mark.parametrize("content_type", ["audio/flac", "audio/mpeg"])
@pytest.mark.parametrize("size", [0, 20, 300_000])
def test_tag_before_a_file_does_not_hide_it(size: int, content_type: str) -> None:
    """Some taggers write MP3's tags to any file."""
    tag = b"ID3\4\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + bytes(size)
    want = decode_chunk(chirps(content_type), ANY).samples
    assert container.find(io.BytesIO(tag + chirps(content_type))) == (parse(content_type).container, len(tag))
    assert container.find(io.BytesIO(tag)) == (None, 0)
    for media in (ANY, parse(content_type)):
        assert np.array_equal(decode_chunk(tag + tag + chirps(content_type), media).samples, want)


def samples(audio: AudioFile) -> Floats:
    with audio:
        return np.concatenate(list(audio.blocks()))


def until_it_breaks(audio: AudioFile) -> tuple[Floats, AudioError]:
    """Return the samples before the damage, and the error."""
    blocks = [np.empty(0, np.float32)]
    with audio, pytest.raises(AudioError) as raised:
        blocks.extend(audio.blocks())
    return np.concatenate(blocks), raised.value


def test_samples_before_damage_are_returned() -> None:
    floats = np.zeros((8000, 2), "<f4")
    floats[5000, 1] = np.inf
    for data, sample_format, frames, cause in (
        (floats.tobytes(), "f32", 5000, "the float samples are not all finite numbers: one is inf"),
        (bytes(4003), "s16", 1000, "the audio is damaged: its last frame has 3 of 4 bytes"),
        (bytes(1), "s16", 0, "the audio is damaged: its last frame has 1 of 4 bytes"),
    ):
        raw = open_file(io.BytesIO(data), parse(f"audio/x-raw; rate=8000; format={sample_format}; channels=2"))
        found, error = until_it_breaks(raw)
        assert (len(found), raw.broken_at, str(error)) == (frames, frames / 8000, cause)


def test_silence_stands_for_a_damaged_packet() -> None:
    """All else is as in the whole file, at its time, and the warning tells when. FLAC has frames of 4096 samples."""
    whole = encoded(chirp(9.0), RATE, "FLAC")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    with open_file(io.BytesIO(damaged), ANY) as audio:
        found = np.concatenate(list(audio.blocks()))
    start = int((found != decode_chunk(whole, ANY).samples).argmax()) // 4096 * 4096
    end = start + 4096
    assert (audio.gaps, audio.silence_ms) == ([], 4096 * 1000 // RATE)
    want = decode_chunk(whole, ANY).samples.copy()
    want[start:end] = 0
    assert np.array_equal(found, want)
    assert audio.warning is not None
    assert f"{start / RATE:.1f}" in audio.warning


@pytest.mark.parametrize("frames", [0, 1, 15, 28, 29])
@pytest.mark.parametrize("channels", [1, 2])
def test_flac_is_cut_off_in_any_place(channels: int, frames: int) -> None:
    """Whatever part of a frame is left, only whole frames are read. The 30 frames of a file differ in size."""
    data = encoded(chirp(6.0)[: 29 * 4096 + 900, :channels], RATE, "FLAC")
    with av.open(io.BytesIO(data), "r") as file:
        starts = [packet.pos or 0 for packet in file.demux(audio=0) if packet.size]
    assert len(starts) == 30
    for cut in (starts[frames] + 1, starts[frames] + 9, [*starts, len(data)][frames + 1] - 1):
        for junk in (b"", bytes(300)):
            if not frames:
                with pytest.raises(AudioError):
                    samples(open_file(io.BytesIO(data[:cut] + junk), ANY))
                continue
            with open_file(io.BytesIO(data[:cut] + junk), ANY) as audio:
                assert sum(map(len, audio.blocks())) == frames * 4096
                assert audio.warning is not None
                assert "it was cut off" in audio.warning


@pytest.mark.parametrize(
    "content_type", [*KINDS, "WAV ULAW", "WAV ALAW", "AIFF ULAW", "AIFF IMA_ADPCM", "AU ULAW", "CAF ALAC_16"]
)
def test_truncated_file_reports_shortfall(content_type: str) -> None:
    kind, _, subtype = content_type.partition(" ")
    data = encoded(chirp(9.0)[:, :1], RATE, kind, subtype) if subtype else chirps(content_type, 9.0)
    whole, half = (open_file(io.BytesIO(part), ANY) for part in (data, data[: len(data) // 2]))
    for audio in (whole, half):
        list(audio.blocks())
    assert whole.warning is None
    assert half.warning is not None
    ends, _, says = half.warning.partition(", ")
    assert 3.5 < float(ends.removeprefix("the audio ends at ").removesuffix(" s")) < 5.5
    marked = content_type in ("audio/ogg", "audio/opus")
    assert says == f"{'without the mark of its end' if marked else 'and its header says 9.0 s'}: it was cut off"


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (24, struct.pack("<I", 999), "sample rate is 999 Hz"),
        (24, struct.pack("<I", 400_000), "sample rate is 400000 Hz"),
        (24, struct.pack("<I", 4_000_000_000), "the WAV file's header"),
        (22, struct.pack("<H", 17), "17 channels"),
        (22, struct.pack("<H", 0), "no packet of the pcm_s16le audio in the WAV file"),
        (20, struct.pack("<H", 0x7777), "the WAV file .* codec"),
    ],
)
def test_invalid_header_values_are_rejected(offset: int, value: bytes, message: str) -> None:
    data = bytearray(chirps("audio/wav"))
    data[offset : offset + len(value)] = value
    with pytest.raises(AudioError, match=message):
        decode_chunk(bytes(data), ANY)


def flac_claiming(samples: int, flac: bytes | None = None) -> bytes:
    """Return a FLAC file with this STREAMINFO length: the lower 36 bits of bytes 18 to 25, 0 for unknown."""
    data = bytearray(flac or chirps("audio/flac"))
    known = int.from_bytes(data[18:26], "big") >> 36 << 36
    data[18:26] = (known | samples).to_bytes(8, "big")
    return bytes(data)


def test_frames_come_from_header_or_are_none() -> None:
    want = decode_chunk(chirps("audio/flac"), ANY).samples
    assert open_file(io.BytesIO(chirps("audio/flac")), ANY).frames == len(want)
    assert open_file(io.BytesIO(flac_claiming(0)), ANY).frames is None
    assert np.array_equal(decode_chunk(flac_claiming(0), ANY).samples, want)
    with pytest.raises(AudioTooLong, match="longer than 3600 s"):
        decode_chunk(flac_claiming(2**36 - 1), ANY)


def test_length_limit_applies_to_decoded_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BLOCK_SAMPLES", 8000)
    audio = open_file(io.BytesIO(bytes(32_000)), parse("audio/x-raw; rate=8000; format=s16"), longest_s=1)
    blocks = audio.blocks()
    assert len(next(blocks)) == 8000
    with pytest.raises(AudioTooLong, match="longer than 1 s"):
        next(blocks)


def test_small_chunk_with_too_many_frames_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    flac = encoded(np.zeros(500_000, np.int16), RATE, "FLAC")
    monkeypatch.setattr(decode, "BLOCK_SAMPLES", 100_000)
    monkeypatch.setattr(decode, "MAX_CHUNK_FRAMES", 400_000)
    assert len(flac) < 20_000
    with pytest.raises(AudioError, match="more than 400000 frames"):
        decode_chunk(flac, ANY)


class Broken(io.BytesIO):
    """A source with only the first `after` bytes."""

    def __init__(self, data: bytes, after: int) -> None:
        super().__init__(data)
        self.after = after

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or self.tell() + size > self.after:
            raise ConnectionError("the log is away")
        return super().read(size)


@pytest.mark.parametrize("content_type", KINDS)
@pytest.mark.parametrize("after", [0, 12, 20_000])
def test_source_error_is_not_reported_as_damage(content_type: str, after: int) -> None:
    with pytest.raises(ConnectionError, match="the log is away"):
        list(open_file(Broken(chirps(content_type, 9.0), after), ANY).blocks())


def test_seek_before_start_fails() -> None:
    guarded = GuardedSource(io.BytesIO(bytes(10)))
    for offset, whence in ((-1, io.SEEK_SET), (-1, io.SEEK_CUR), (-11, io.SEEK_END), (2**63 - 1, io.SEEK_END)):
        assert guarded.seek(offset, whence) == -1
    assert guarded.seek(-1, io.SEEK_END) == guarded.tell() == 9
    guarded.check()
