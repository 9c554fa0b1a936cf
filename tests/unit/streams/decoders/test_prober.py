"""Recordings of strangers: sound ones are described, everything else is named as a fault and harms nobody."""

from __future__ import annotations

import asyncio
import os
import struct
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from streams.decoders.pool import DecoderPool
from streams.decoders.prober import RecordingProber
from tests.audio import encoded, sine
from topics import media
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.ports.prober import ProbeResult

T = TypeVar("T")
RATE = 8000


class House:
    """A prober and the loop that it lives on."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.decoders = DecoderPool()
        self.prober = RecordingProber(self.decoders.open_file)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def probe(self, data: bytes, declared: str | None = None) -> ProbeResult:
        return self.run(probed(self.prober, data, declared))

    def close(self) -> None:
        self.run(self.prober.close())
        self.decoders.stop()
        self.runner.close()


async def probed(prober: RecordingProber, data: bytes, declared: str | None = None) -> ProbeResult:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return await prober.probe(file.fileno(), None if declared is None else media.parse(declared))


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


def tone(container: str, subtype: str | None = None, seconds: float = 1.5, channels: int = 1) -> bytes:
    samples = 0.5 * sine(seconds, rate=RATE)
    return encoded(np.repeat(samples[:, None], channels, 1), RATE, container, subtype)


def riff(frames: bytes, *, kind: int = 1, bits: int = 16, channels: int = 1, size: int | None = None) -> bytes:
    width = bits // 8 * channels
    header = struct.pack("<4sI4sHHIIHH", b"fmt ", 16, b"", kind, channels, RATE, RATE * width, width, bits)
    header = header[:8] + header[12:]
    body = b"WAVE" + header + b"data" + struct.pack("<I", len(frames) if size is None else size) + frames
    return b"RIFF" + struct.pack("<I", min(len(body), 2**32 - 1) if size is None else 2**32 - 1) + body


@pytest.mark.parametrize(
    ("container", "subtype", "format"),
    [
        ("WAV", "PCM_16", "wav"),
        ("WAV", "FLOAT", "wav"),
        ("FLAC", None, "flac"),
        ("OGG", "VORBIS", "ogg"),
        ("OGG", "OPUS", "ogg"),
        ("MP3", None, "mp3"),
        ("AIFF", None, "aiff"),
    ],
)
def test_containers_are_told_by_content(house: House, container: str, subtype: str | None, format: str) -> None:
    found = house.probe(tone(container, subtype, channels=2))
    assert (found.content_type, found.format, found.rate, found.channels) == (f"audio/{format}", format, RATE, 2)
    assert found.length_ms == (None if format == "mp3" else 1500)
    assert media.parse(found.content_type).container == format


def test_raw_audio_is_what_it_is_declared_to_be(house: House) -> None:
    found = house.probe(bytes(32), "audio/x-raw; rate=8000; format=f32; channels=2")
    assert found == ProbeResult("audio/x-raw; rate=8000; format=f32le; channels=2", "raw", RATE, 2, 0)
    assert media.parse(found.content_type) == media.parse("audio/x-raw; rate=8000; format=f32le; channels=2")


def test_one_sample_is_audio(house: House) -> None:
    assert house.probe(riff(b"\1\0")).rate == RATE
    assert house.probe(b"\1\0", "audio/x-raw; rate=8000; format=s16").format == "raw"


def nan(count: int = 100) -> bytes:
    return np.full(count, np.nan, "<f4").tobytes()


FAULTS = {
    "nothing": (b"", None, "the data holds no audio"),
    "text": (b"hello, is this thing on?" * 10, None, "no audio file"),
    "raw nothing": (b"", "audio/x-raw; rate=8000; format=s16", "holds no audio"),
    "raw odd": (bytes(31), "audio/x-raw; rate=8000; format=s16", "not a whole number of frames"),
    "raw NaN": (nan(), "audio/x-raw; rate=8000; format=f32", "not all finite"),
    "raw for days": (bytes(24 * 3600 * 1000 + 1), "audio/x-raw; rate=1000; format=s8", "longer than"),
    "NaN": (riff(nan(), kind=3, bits=32), None, "not all finite"),
    "infinite": (riff(np.full(9, np.inf, "<f4").tobytes(), kind=3, bits=32), None, "not all finite"),
    "no channels": (riff(bytes(64), channels=0), None, "cannot be read|0 channels"),
    "no frames": (riff(b""), None, "holds no audio"),
    "no such codec": (riff(bytes(64), kind=0x7777), None, "cannot be read"),
    "torn header": (riff(bytes(64))[:20], None, "cannot be read"),
    "ogg of noise": (b"OggS" + bytes(range(256)) * 8, None, "cannot be read"),
    "flac of noise": (b"fLaC" + bytes(range(256)) * 8, None, "cannot be read|damaged|no audio"),
    "mp3 of noise": (b"\xff\xfb" + os.urandom(64), None, "cannot be read|no audio"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_have_names(house: House, fault: str) -> None:
    data, declared, message = FAULTS[fault]
    with pytest.raises(AudioError, match=message):
        house.probe(data, declared)


def ten_hours_of_flac() -> bytes:
    """A kilobyte that claims ten hours: the count of samples is the low 36 bits after the rate."""
    flac = bytearray(tone("FLAC", seconds=0.05)[:1024])
    frames = 10 * 3600 * RATE
    flac[21] = flac[21] & 0xF0 | frames >> 32
    flac[22:26] = (frames & 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(flac)


def test_a_claim_costs_nothing(house: House) -> None:
    """What a header says is neither allocated nor waited for; what is there is audio."""
    found = house.probe(ten_hours_of_flac())
    assert (found.format, found.length_ms) == ("flac", 10 * 3600 * 1000)
    assert house.probe(riff(bytes(64), size=2**32 - 1)).format == "wav"


def test_too_long_has_a_name_of_its_own(house: House) -> None:
    with pytest.raises(AudioTooLong, match="longer than 86400 s"):
        house.probe(bytes(24 * 3600 * 1000 + 1), "audio/x-raw; rate=1000; format=s8")


def test_damage_of_any_kind_is_an_answer(house: House) -> None:
    random = np.random.default_rng(4)
    whole = [tone("WAV"), tone("FLAC"), tone("OGG"), tone("OGG", "OPUS"), tone("MP3")]

    def damaged(number: int) -> bytes:
        data = np.frombuffer(whole[number % len(whole)], np.uint8).copy()
        where = random.integers(0, min(len(data), 4096), 1 + number % 20)
        data[where] = random.integers(0, 256, len(where))
        return data[: random.integers(1, len(data))].tobytes()

    async def all_of_them() -> list[ProbeResult | BaseException]:
        return await asyncio.gather(*(probed(house.prober, damaged(n)) for n in range(40)), return_exceptions=True)

    kinds = {type(answer) for answer in house.run(all_of_them())}
    assert {ProbeResult, AudioError} <= kinds <= {ProbeResult, AudioError, AudioTooLong}


def test_a_file_that_cannot_be_read_is_no_fault_of_the_audio(house: House, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(Unavailable):
        house.run(house.prober.probe(directory, None))
    os.close(directory)
