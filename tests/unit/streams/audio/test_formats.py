"""Content types by name, raw PCM sample by sample, and plain WAV files equal to the decoder's output."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audio import pcm, wav
from streams.audio.claims import MAX_CHUNKS
from streams.audio.decode import decode_chunk
from tests import naive
from tests.audio import encoded
from topics.errors import AudioError, BadRequest
from topics.media import CONTAINERS, MAX_CHANNELS, MAX_RATE, MIN_RATE, Media, parse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("declared", "container"), CONTAINERS.items())
def test_content_types_name_their_container(declared: str, container: str) -> None:
    assert parse(declared) == Media(declared, container)  # type: ignore[arg-type]
    assert parse(f" {declared.upper()} ; codecs=x").container == container


@pytest.mark.parametrize(
    ("text", "rate", "sample_format", "channels"),
    [
        ("audio/x-raw; rate=44100; format=s16le", 44100, "s16le", 1),
        ("audio/x-raw;rate=22050;format=f32", 22050, "f32le", 1),
        ("audio/x-raw; rate = 8000 ; format = u24be ; channels = 2;", 8000, "u24be", 2),
        ('Audio/X-Raw; format="S24"; rate="16000"', 16000, "s24le", 1),
        (f"audio/x-raw; rate={MIN_RATE}; format=u8; channels={MAX_CHANNELS}", MIN_RATE, "u8le", MAX_CHANNELS),
        (f"audio/x-raw; rate={MAX_RATE}; format=f16be", MAX_RATE, "f16be", 1),
        ("audio/x-raw; rate=16000; format=S16_LE", 16000, "s16le", 1),
        ("audio/x-raw; rate=16000; format=S24_3BE", 16000, "s24be", 1),
        ("audio/x-raw; rate=16000; format=FLOAT_LE", 16000, "f32le", 1),
        ("audio/x-raw; rate=16000; format=F32LE", 16000, "f32le", 1),
        ("audio/L16; rate=44100; channels=2", 44100, "s16be", 2),
        ("audio/l16;rate=8000", 8000, "s16be", 1),
        ("audio/L24; rate=48000", 48000, "s24be", 1),
        ("audio/L8; rate=8000", 8000, "u8le", 1),
        ("audio/pcm; rate=24000", 24000, "s16le", 1),
        ("audio/pcm; rate=24000; format=f32; channels=2", 24000, "f32le", 2),
    ],
)
def test_raw_content_type_is_parsed(text: str, rate: int, sample_format: str, channels: int) -> None:
    assert parse(text) == Media("audio/x-raw", "raw", rate, sample_format, channels)


@pytest.mark.parametrize("kind", ["s16", "s24", "s32", "u16", "u24", "u32", "f16", "f32", "s8", "u8"])
@pytest.mark.parametrize("order", ["le", "be", ""])
def test_every_sample_format_is_parsed(kind: str, order: str) -> None:
    assert parse(f"audio/x-raw; rate=16000; format={kind}{order}").sample_format == kind + (order or "le")


NO_RATES = ["0", "999", "384001", "44.1", "-8000", "٤٤١٠٠", "99999999999999999999"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nothing is not supported"),
        ("audio/midi", "'audio/midi' is not supported"),
        ("text/plain", "'text/plain' is not supported"),
        ("audio/x-raw; format=s16", "rate must be a whole number from 1000 to 384000 Hz, not nothing"),
        *((f"audio/x-raw; rate={rate}; format=s16", "rate must be") for rate in NO_RATES),
        *((f"audio/x-raw; rate=16000{form}", "format must be") for form in ("", "; format=s12", "; format=f64le")),
        ("audio/x-raw; rate=16000; format=f24le", "format f24 has no defined encoding"),
        ("audio/x-raw; rate=16000; format=S24_LE", "format s24_le has 24 bits in 4 bytes"),
        ("audio/L16; channels=2", "rate must be"),
        ("audio/L16; rate=16000; format=s16le", "audio/l16 takes rate and channels, not 'format'"),
        ("audio/x-raw; rate=16000; format=s16; channels=0", "channels must be"),
        ("audio/x-raw; rate=16000; format=s16; channels=17", "channels must be"),
        ("audio/x-raw; rate=16000; format=s16; layout=planar", "not 'layout'"),
        ("audio/x-raw; rate=16000; rate=8000; format=s16", "'rate' appears twice"),
        ("audio/x-raw; rate; format=s16", "'rate' is not of the form name=value"),
    ],
)
def test_unsupported_content_types_are_rejected(text: str, fault: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(text)
    assert str(refused.value).startswith("content_type: ")
    assert fault in str(refused.value)


INTEGERS = [f"{kind}{bits}{order}" for kind in "su" for bits in (8, 16, 24, 32) for order in ("le", "be")]


@pytest.mark.parametrize("sample_format", INTEGERS)
@given(data=st.binary(max_size=96), channels=st.integers(1, 3))
def test_integer_samples_match_reference(sample_format: str, data: bytes, channels: int) -> None:
    size = int(sample_format[1:-2]) // 8
    data = data[: len(data) // (size * channels) * size * channels]
    want = [naive.integer_sample(data[i : i + size], sample_format) for i in range(0, len(data), size)]
    got = pcm.decode(data, sample_format, channels)
    assert got.dtype == np.float32
    assert np.array_equal(got, np.array(want, np.float32).reshape(-1, channels))


@pytest.mark.parametrize(
    ("sample_format", "code"), [("f16le", "<f2"), ("f16be", ">f2"), ("f32le", "<f4"), ("f32be", ">f4")]
)
def test_float_samples_are_decoded(sample_format: str, code: str) -> None:
    values = np.array([[0.0, -1.0], [0.5, 0.25]], code)
    assert pcm.decode(values.tobytes(), sample_format, 2).tolist() == values.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_non_finite_floats_are_rejected(bad: float) -> None:
    with pytest.raises(AudioError, match=r"not all finite|a float sample is 1e\+30"):
        pcm.decode(np.array([0.0, bad, 0.0], "<f4").tobytes(), "f32le", 1)


@pytest.mark.parametrize(
    ("length", "sample_format", "channels", "size"), [(5, "s16le", 1, 2), (8, "s24be", 1, 3), (6, "s16le", 2, 4)]
)
def test_incomplete_frame_is_rejected(length: int, sample_format: str, channels: int, size: int) -> None:
    with pytest.raises(AudioError, match=rf"{length} bytes .* frames of {size} bytes"):
        pcm.decode(bytes(length), sample_format, channels)


RATE = 8000


def saved(channels: int = 1, subtype: str = "PCM_16", kind: str = "WAV") -> bytes:
    return encoded(np.random.default_rng(1).uniform(-1, 1, (999, channels)), RATE, kind, subtype)


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_plain_wav_matches_decoder(channels: int) -> None:
    data = saved(channels)
    found, decoded = wav.read_plain(data), decode_chunk(data, parse("audio/wav"))
    assert found is not None
    assert found.rate == decoded.rate == RATE
    assert np.array_equal(found.samples, decoded.samples)
    assert wav.looks_plain(data)


@pytest.mark.parametrize(
    ("subtype", "kind"), [("PCM_24", "WAV"), ("FLOAT", "WAV"), ("PCM_U8", "WAV"), ("PCM_16", "AIFF")]
)
def test_other_formats_are_not_plain_wav(subtype: str, kind: str) -> None:
    assert wav.read_plain(saved(subtype=subtype, kind=kind)) is None


def test_damaged_wav_is_none_or_shorter() -> None:
    """No damage raises an error."""
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


def test_number_of_skipped_wav_chunks_is_bounded() -> None:
    """Millions of empty chunks would otherwise keep an interpreter busy for seconds."""
    data = saved()
    plain, odd = wav.read_plain(data), b"LIST\x03\0\0\0abc\0"
    assert plain is not None
    for count, read in ((1, True), (MAX_CHUNKS - 2, True), (MAX_CHUNKS, False)):
        found = wav.read_plain(data[:36] + odd * count + data[36:])
        assert (found is not None) is read
        assert found is None or np.array_equal(found.samples, plain.samples)


def test_written_wav_is_read_back() -> None:
    samples = np.array([0, 0.5, -1, 2, -2], np.float32)
    found = wav.read_plain(wav.wav_file(wav.to_pcm16(samples), RATE))
    assert found is not None
    assert found.samples.tolist() == wav.from_pcm16(wav.to_pcm16(samples)).tolist()
    assert found.samples.tolist() == pytest.approx([0, 0.5, -1, 1, -1], abs=1e-4)
