"""Waveform and spectrogram over HTTP: their formats, and invalid requests."""

import struct
import zlib

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.jobs.pictures import whole_stretch
from app.jobs.png import png
from streams.audio import picture
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import SOUND
from topics.errors import AudioError, Unavailable
from topics.ports import pictures as port
from topics.ports.directory import Principal


@pytest.fixture
def job(house: House) -> str:
    return house.jobs.create(SOUND, keep_audio_ms=60_000)


def unpacked(data: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return the pixels of a greyscale PNG, uint8[height, width], decoded by the standard."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,), name = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        chunks[name] = body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(name + body),)
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert kind == [8, 0, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def test_png_round_trip() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 13), np.uint8)
    assert np.array_equal(unpacked(png(pixels.tobytes(), 13)), pixels)


def test_spectrogram_is_png(job: str, http: TestClient) -> None:
    answer = http.get(f"/api/v1/jobs/{job}/spectrogram?columns=10&start=1.5&end=2")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert (answer.headers["earshot-seconds"], answer.headers["cache-control"]) == ("4.000", "no-store")
    pixels = unpacked(answer.content)
    assert pixels.shape == (64, 10)
    assert pixels[-1].min() == 255, "what is low is below"
    assert not pixels[:-1].any()


def test_waveform_has_audiowaveform_format(job: str, http: TestClient) -> None:
    answer = http.get(f"/api/v1/jobs/{job}/waveform?points=100")
    assert answer.json() == {
        "version": 2,
        "channels": 1,
        "sample_rate": 16_000,
        "samples_per_pixel": 640,
        "bits": 8,
        "length": 100,
        "data": [-100, 100] * 100,
    }
    near = http.get(f"/api/v1/jobs/{job}/waveform?start=1&end=1.001&points=8192").json()
    assert (near["samples_per_pixel"], near["length"]) == (80, 1)
    assert http.get(f"/api/v1/jobs/{job}/waveform?start=99").json()["length"] == 0


@pytest.mark.parametrize("view", ["waveform", "spectrogram"])
@pytest.mark.parametrize(
    "query",
    [
        "columns=1000000000&points=1000000000",
        "columns=0&points=0",
        "columns=-1&points=-1",
        "columns=1e3&points=1e3",
        "start=2&end=1",
        "start=2&end=2",
        "start=-1",
        "start=nan",
        "start=inf",
        "end=1e9",
        "end=1000000",
        "start=",
        "end=%D9%A3",
        "start=0.0000000000001",
    ],
)
def test_invalid_parameters_return_400(job: str, http: TestClient, view: str, query: str) -> None:
    answer = http.get(f"/api/v1/jobs/{job}/{view}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize("view", ["waveform", "spectrogram"])
def test_unavailable_picture_returns_error(house: House, job: str, http: TestClient, view: str) -> None:
    house.jobs.drawing = Unavailable("the picture of the recording is being drawn")
    answer = http.get(f"/api/v1/jobs/{job}/{view}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    house.jobs.drawing = AudioError("the audio is damaged")
    answer = http.get(f"/api/v1/jobs/{job}/{view}")
    assert (answer.status_code, answer.headers["earshot-reason"]) == (500, "the audio is damaged")
    kept_no_audio = http.get(f"/api/v1/jobs/{house.jobs.create(SOUND)}/{view}")
    assert (kept_no_audio.status_code, "keep_audio_seconds" in kept_no_audio.json()["error"]) == (404, True)
    house.directory.keys["another"] = Principal("another", "organization")
    assert http.get(f"/api/v1/jobs/{job}/{view}", headers={"X-Api-Key": "another"}).status_code == 404
    # The key is judged before the query.
    for query in ("", "?start=x"):
        assert http.get(f"/api/v1/jobs/{job}/{view}{query}", headers={"X-Api-Key": "nobody"}).status_code == 401


def test_open_interval_ends_with_audio() -> None:
    assert whole_stretch((1.0, None), 4.0) == (1.0, 4.0)
    assert whole_stretch((9.0, None), 4.0) == (9.0, 9.005)
    assert whole_stretch((1.0, 9.0), 4.0) == (1.0, 9.0)


def test_port_and_drawing_constants_agree() -> None:
    assert (port.BANDS, port.RATE, port.STEP) == (picture.BANDS, picture.RATE, picture.STEP)
