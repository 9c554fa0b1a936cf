"""MP3 is decoded to its end, whatever length its header declares."""

import io
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import soundfile

from streams.audio.decode import decode_chunk, open_file
from streams.models.protocol import Floats
from tests.unit.streams.audio.test_decode import ANY

#: MPEG 1, 2 and 2.5, which determine all positions in a frame.
KINDS = [(44_100, 2), (48_000, 1), (24_000, 1), (16_000, 2), (8_000, 1)]
#: Delay before the coder's first input sample, in frames; no header declares it.
DELAY = 1105
ID3 = b"ID3\x04\0\0\0\0\x07\x68".ljust(10 + 1000, b"\0")
ID3_AT_END = b"TAG".ljust(128, b"\0")
#: Without bytes that could start a frame, which could be of another kind and so end the file.
JUNK = np.random.default_rng(1).bytes(300).replace(b"\xff", b"")


def coded(levels: list[float], rate: int, channels: int, mode: str, compression: float) -> bytes:
    """Return noise whose level changes every second."""
    samples = np.random.default_rng(1).normal(0, np.repeat(levels, rate)[:, None], (len(levels) * rate, channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="MP3", bitrate_mode=mode, compression_level=compression)
    return buffer.getvalue()


@cache
def told(rate: int = 16_000, channels: int = 1) -> bytes:
    """Return a second of noise and two of near silence, after a frame that declares the number of frames."""
    return coded([0.3, 0.0003, 0.0003], rate, channels, "VARIABLE", 0.3)


@cache
def starts(data: bytes) -> list[int]:
    """Return the starts of the frames in a file of frames, and the end of the last one."""
    found = [0]
    while found[-1] < len(data):
        _, kind, bits, _ = data[found[-1] :][:4]
        first = kind >> 3 & 3 == 3
        rate = (44_100, 48_000, 32_000)[bits >> 2 & 3] >> (2, 9, 1, 0)[kind >> 3 & 3]
        low = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
        high = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
        size = (144_000 if first else 72_000) * (high if first else low)[(bits >> 4) - 1] // rate + (bits >> 1 & 1)
        found.append(found[-1] + size)
    assert found[-1] == len(data)
    return found


def untold(rate: int = 16_000, channels: int = 1) -> bytes:
    return told(rate, channels)[starts(told(rate, channels))[1] :]


def sounding(data: bytes, rate: int = 16_000) -> int:
    return (len(starts(data)) - 1) * (1152 if rate > 24_000 else 576)


def samples(data: bytes) -> Floats:
    return decode_chunk(data, ANY).samples


@pytest.mark.parametrize(("rate", "channels"), KINDS)
def test_missing_length_is_decoded_to_the_end(rate: int, channels: int) -> None:
    """By its first frames, which are the longest, the file would be less than half as long."""
    data = untold(rate, channels)
    found = samples(data)
    assert soundfile.info(io.BytesIO(data)).frames < 0.9 * len(found)
    assert len(found) == sounding(data, rate)
    same = samples(told(rate, channels))
    assert len(same) == 3 * rate
    assert np.array_equal(found[DELAY : DELAY + len(same)], same)


def test_estimated_length_is_not_a_limit() -> None:
    """Quiet at first: by the rate of its first frames it would last five minutes."""
    data = coded([0.0], 16_000, 1, "CONSTANT", 0.99) + coded([0.1] * 15, 16_000, 1, "CONSTANT", 0.0)
    assert soundfile.info(io.BytesIO(data)).duration > 300
    audio = open_file(io.BytesIO(data), ANY, 60)
    assert audio.frames is None
    assert sum(map(len, audio.blocks())) / audio.rate == pytest.approx(16, abs=0.5)


@pytest.mark.parametrize("data", [ID3 + untold(), ID3 + ID3 + untold(), untold() + ID3_AT_END, untold() + JUNK])
def test_tags_and_junk_around_frames_are_ignored(data: bytes) -> None:
    assert np.array_equal(samples(data), samples(untold()))


def test_audio_after_damaged_tag_or_junk_is_found() -> None:
    assert len(samples(ID3[:6] + b"\x80" + ID3[7:] + told())) == 3 * 16_000
    assert len(samples(untold() + JUNK + untold())) == 2 * sounding(untold())


@pytest.mark.parametrize("more", [b"", ID3_AT_END, JUNK])
@pytest.mark.parametrize("tag", [b"", ID3])
def test_encoder_padding_is_removed(tag: bytes, more: bytes) -> None:
    assert np.array_equal(samples(tag + told() + more), samples(told()))
    assert len(samples(told())) == 3 * 16_000


@pytest.mark.parametrize(("rate", "channels"), KINDS)
def test_concatenated_files_are_decoded_to_the_end(rate: int, channels: int) -> None:
    """The first header declares only its own part, and the second header's frame has no audio."""
    data = told(rate, channels)
    for between in (b"", ID3_AT_END + ID3):
        found = samples(data + between + data)
        # Junk between the files may hide that frame.
        more = len(found) - (2 * sounding(untold(rate, channels), rate) - DELAY)
        assert more in (0, sounding(data, rate) - sounding(untold(rate, channels), rate))
        assert np.array_equal(found[: 3 * rate], samples(data))


@pytest.mark.parametrize("number", [0, 1, 20, 60, 100_000, 2**31 - 1, 2**32 - 1])
def test_wrong_frame_count_in_header_is_ignored(number: int) -> None:
    data, place = bytearray(told()), told().index(b"Xing") + 8
    data[place : place + 4] = number.to_bytes(4, "big")
    with open_file(io.BytesIO(data), ANY) as audio:
        assert 3 * 16_000 <= sum(map(len, audio.blocks())) <= sounding(untold())
    assert audio.warning is None


@pytest.mark.parametrize("lost", [1, 20, 30, 34, 40])
def test_incomplete_last_frame_loses_nothing_before_it(lost: int) -> None:
    """Nothing before it is lost; it counts once its header is complete."""
    data, places = untold(), starts(untold())
    end = len(data) - lost
    whole = sum(place + 4 <= end for place in places[:-1])
    found = samples(data[:end])
    assert len(found) == whole * 576
    before = sum(place <= end for place in places[1:]) * 576
    assert np.array_equal(found[:before], samples(data)[:before])


def test_chunks_of_whole_frames_add_up() -> None:
    cuts = [*starts(untold())[:-1:20], len(untold())]
    assert sum(len(samples(untold()[start:end])) for start, end in pairwise(cuts)) == sounding(untold())
