"""Untrusted recordings: valid ones are described and decoded, others get an error and harm nothing.

Formats of phones and browsers are decoded if the extra is installed; otherwise the error names it.
"""

import asyncio
import io
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import pytest

from streams.audio import container
from streams.workers.prober import RecordingProber
from tests.audio import encoded, muxed, sine
from tests.file_pool import FilePool
from tests.unit.streams.audio.test_decode import ANY, samples
from tests.waiting import until
from topics import media
from topics.errors import AudioError, AudioTooLong, Unavailable
from topics.ports.prober import MAX_PROBES, ProbeResult

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool() -> Iterator[FilePool]:
    pool = FilePool()
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def prober(pool: FilePool) -> Iterator[RecordingProber]:
    prober = RecordingProber(pool.open_file)
    yield prober
    asyncio.run(prober.close())


async def probe(prober: RecordingProber, data: bytes, declared: str | None = None) -> ProbeResult:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return await prober.probe(file.fileno(), None if declared is None else media.parse(declared))


def fault(pool: FilePool, data: bytes, declared: str = "application/octet-stream") -> str:
    with pytest.raises(AudioError) as raised:
        samples(pool.open_file(io.BytesIO(data), media.parse(declared)))
    return str(raised.value)


# --- formats of computers -------------------------------------------------------------------------------------------

RATE = 8000


def tone(container: str, subtype: str | None = None, seconds: float = 1.5, channels: int = 1) -> bytes:
    samples = 0.5 * sine(seconds, rate=RATE)
    return encoded(np.repeat(samples[:, None], channels, 1), RATE, container, subtype)


@pytest.mark.parametrize("kind", ["WAV PCM_16", "WAV FLOAT", "FLAC", "OGG VORBIS", "OGG OPUS", "MP3", "AIFF"])
async def test_containers_are_detected_by_content(prober: RecordingProber, kind: str) -> None:
    container, _, subtype = kind.partition(" ")
    format = container.lower()
    found = await probe(prober, tone(container, subtype or None, channels=2))
    rate = 48_000 if subtype == "OPUS" else RATE
    assert (found.content_type, found.format, found.rate, found.channels) == (f"audio/{format}", format, rate, 2)
    # The length of Opus counts what its coder needs to begin.
    assert found.length_ms == (None if format == "mp3" else 1506 if subtype == "OPUS" else 1500)
    assert media.parse(found.content_type).container == format


CODERS = {"WAV": ("GSM610", "G721_32", "IMA_ADPCM", "MS_ADPCM"), "AU": ("G721_32", "G723_24"), "AIFF": ("GSM610",)}


@pytest.mark.parametrize(("container", "coder"), [(kind, coder) for kind, coders in CODERS.items() for coder in coders])
async def test_coders_that_cannot_seek_are_read(pool: FilePool, container: str, coder: str) -> None:
    """The file and its decoder are as sound as any, and the tone is in it."""
    with pool.open_file(io.BytesIO(tone(container, coder, 20.0)), ANY, block_samples=50_000) as audio:
        found = np.concatenate(list(audio.blocks()))
    assert len(found) / RATE == pytest.approx(20.0, abs=0.1)
    assert np.sqrt(2 * np.mean(found**2)) == pytest.approx(0.5, rel=0.1)


async def test_raw_audio_uses_declared_format(prober: RecordingProber) -> None:
    found = await probe(prober, bytes(32), "audio/x-raw; rate=8000; format=f32; channels=2")
    assert found == ProbeResult("audio/x-raw; rate=8000; format=f32le; channels=2", "raw", RATE, 2, 0)
    assert media.parse(found.content_type) == media.parse("audio/x-raw; rate=8000; format=f32le; channels=2")
    # A single sample is audio.
    assert (await probe(prober, encoded(np.zeros(1), RATE))).rate == RATE
    assert (await probe(prober, b"\1\0", "audio/x-raw; rate=8000; format=s16")).format == "raw"


async def test_overlong_audio_raises_audio_too_long(prober: RecordingProber) -> None:
    with pytest.raises(AudioTooLong, match="longer than 86400 s"):
        await probe(prober, bytes(24 * 3600 * 1000 + 1), "audio/x-raw; rate=1000; format=s8")


async def test_unreadable_file_raises_unavailable(prober: RecordingProber, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(Unavailable):
        await prober.probe(directory, None)
    os.close(directory)


async def test_probe_cancelled_in_the_queue_closes_its_descriptor(tmp_path: Path) -> None:
    """Otherwise a deleted upload would keep its space on the disk."""
    opened, gate = threading.Semaphore(0), threading.Event()

    def wait(*_: object, **__: object) -> NoReturn:
        opened.release()
        gate.wait()
        raise AudioError("the gate is open")

    prober, data = RecordingProber(wait), tone("WAV")
    probes = [asyncio.create_task(probe(prober, data)) for _ in range(MAX_PROBES)]
    await asyncio.to_thread(lambda: [opened.acquire() for _ in probes])
    (tmp_path / "upload").write_bytes(data)
    with (tmp_path / "upload").open("rb") as upload:
        queued = asyncio.create_task(prober.probe(upload.fileno(), None))
        await until(lambda: holders(tmp_path / "upload") == 2)
        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
        await until(lambda: holders(tmp_path / "upload") == 1)
    gate.set()
    assert {type(end) for end in await asyncio.gather(*probes, return_exceptions=True)} == {AudioError}
    await prober.close()


def holders(path: Path) -> int:
    """Return how many descriptors of this process name a file."""
    return sum(file.path == str(path) for file in psutil.Process().open_files())


# --- formats of phones and browsers ---------------------------------------------------------------------------------

PHONE_RATE = 48_000
SECONDS = 3.0
#: Name, our container, FFmpeg's muxer and encoder.
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


def memo(muxer: str, encoder: str | None, *, video_s: float = 0.0, channels: int = 2, silent_s: float = 0.0) -> bytes:
    """Return a tone of three seconds after some silence, a second channel half as loud; no sound without an encoder."""
    tone = np.concatenate((np.zeros(round(silent_s * PHONE_RATE)), 0.5 * sine(SECONDS, 440, PHONE_RATE)))
    return muxed(np.stack((tone, tone / 2)[:channels], axis=1), PHONE_RATE, muxer, encoder, video_s=video_s)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
async def test_phone_and_browser_recordings_are_decoded(
    pool: FilePool, prober: RecordingProber, kind: str, channels: int
) -> None:
    """Three seconds of one channel are more samples than a decoder sends at a time."""
    name, muxer, encoder = KINDS[kind]
    data = memo(muxer, encoder, video_s=3.0 * (kind == "video of a phone"), channels=channels)
    assert container.detect(data) == name
    found = await probe(prober, data)
    assert (found.format, found.rate, found.channels) == (name, PHONE_RATE, channels)
    assert media.parse(found.content_type).container == name
    audio = pool.open_file(io.BytesIO(data), ANY)
    assert (audio.rate, audio.channels) == (PHONE_RATE, channels)
    got = samples(audio)
    assert len(got) / PHONE_RATE == pytest.approx(SECONDS, abs=0.15)
    # The tone, wherever it begins; the coder's delay may be included.
    middle = got[PHONE_RATE // 2 : -PHONE_RATE // 2]
    assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(0.5 if channels == 1 else 0.375, rel=0.05)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert np.argmax(spectrum) * PHONE_RATE / len(middle) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("kind", ["AAC", "AC-3"])
async def test_estimated_length_is_no_claim(pool: FilePool, prober: RecordingProber, kind: str) -> None:
    """FFmpeg estimates it from the beginning, where silence takes few bytes."""
    _, muxer, encoder = KINDS[kind]
    data = memo(muxer, encoder, silent_s=6.0)
    assert (await probe(prober, data)).length_ms is None
    with pool.open_file(io.BytesIO(data), ANY, 12) as audio:
        assert sum(map(len, audio.blocks())) / PHONE_RATE == pytest.approx(6.0 + SECONDS, abs=0.15)
    assert audio.warning is None


def test_phone_recording_faults_have_specific_errors(pool: FilePool) -> None:
    phone = memo("ipod", "aac")
    assert fault(pool, tone("AU", "G723_40")) == "the AU file has audio of the codec g723_40, which is not supported"
    for part in (phone[: len(phone) // 2], phone[:40]):
        assert fault(pool, part) == (
            "the MP4 (M4A, MOV, 3GP) file has no index (moov): it was cut off, or its recording never ended"
        )
    assert "but the data is MP4" in fault(pool, phone, "audio/webm")
    assert "declared audio/mp4, but the data is WAV" in fault(pool, encoded(sine(1)), "audio/mp4")
    junk = b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 8
    assert fault(pool, junk) == "the Matroska (MKA, WebM) file's header is damaged or not complete"
    with pytest.raises(AudioTooLong, match="longer than 2 s"):
        samples(pool.open_file(io.BytesIO(memo("ac3", "ac3")), ANY, 2))
    assert fault(pool, memo("mp4", None, video_s=3.0)) == "the MP4 (M4A, MOV, 3GP) file holds no audio"


async def test_damaged_recordings_are_probed_or_raise_audio_errors(pool: FilePool, prober: RecordingProber) -> None:
    random, damaged = np.random.default_rng(4), []
    whole = [tone("WAV"), tone("FLAC"), tone("OGG"), tone("OGG", "OPUS"), tone("MP3")]
    whole += [memo(muxer, encoder) for _, muxer, encoder in KINDS.values()]
    for number, recording in enumerate(3 * whole):
        data = np.frombuffer(recording, np.uint8).copy()
        where = random.integers(0, min(len(data), 4096) if number % 2 else len(data), 1 + number % 20)
        data[where] = random.integers(0, 256, len(where))
        damaged.append(data[: random.integers(1, len(data))].tobytes())
    answers = await asyncio.gather(*(probe(prober, data) for data in damaged), return_exceptions=True)
    kinds = {type(answer) for answer in answers}
    assert {ProbeResult, AudioError} <= kinds <= {ProbeResult, AudioError, AudioTooLong}
    for one in damaged:
        try:
            got = samples(pool.open_file(io.BytesIO(one), ANY))
        except AudioError:
            continue
        assert np.isfinite(got).all()
