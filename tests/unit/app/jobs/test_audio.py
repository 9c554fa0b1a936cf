"""The recording of a job: by key or link, whole or in ranges, as a waveform or spectrogram, and for no one else."""

import io
import time
from collections.abc import AsyncGenerator
from typing import Any
from unittest import mock
from urllib.parse import unquote

import msgspec
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from app.jobs import audio
from app.jobs.audio import disposition, download_quota, sent_pieces
from app.jobs.pictures import whole_stretch
from app.jobs.png import png
from streams.audio import picture
from tests.contract.answers import watched
from tests.unit.app.conftest import OPTIONS, House
from tests.unit.app.jobs.conftest import SOUND
from tests.unit.app.jobs.double import RECORDING
from topics import apikeys
from topics.apikeys import KeyKind
from topics.choices import Choices
from topics.errors import AudioError, Unavailable
from topics.jobs.records import Removed
from topics.keys import new_id
from topics.ports import pictures as port
from topics.ports.directory import AudioLink, Principal
from topics.turns import Holder

WHOLE = b"audio".ljust(RECORDING.size, b"\0")


def kept(house: House) -> str:
    return house.jobs.create(SOUND, keep_audio_ms=60_000)


def path(job: str, token: str = "") -> str:
    return f"/api/v1/jobs/{job}/audio" + (f"?token={token}" if token else "")


def test_audio_is_served_whole_and_in_ranges(house: House, http: TestClient) -> None:
    job = kept(house)
    whole = http.get(path(job))
    assert (whole.status_code, whole.content) == (200, WHOLE)
    assert whole.headers["content-type"] == "audio/wav"
    assert whole.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.wav"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["cache-control"] == "no-store"
    part = http.get(path(job), headers={"Range": "bytes=2-5"})
    assert (part.status_code, part.content) == (206, WHOLE[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{len(WHOLE)}"
    assert part.headers["content-length"] == "4"
    same = http.get(path(job), headers={"Range": "bytes=-3", "If-Range": whole.headers["etag"]})
    assert (same.status_code, same.content) == (206, WHOLE[-3:])
    other = http.get(path(job), headers={"Range": "bytes=-3", "If-Range": '"other"'})
    assert (other.status_code, other.content) == (200, WHOLE)
    late = http.get(path(job), headers={"Range": f"bytes={len(WHOLE)}-"})
    assert (late.status_code, late.headers["content-range"]) == (416, f"bytes */{len(WHOLE)}")


def test_head_has_no_body(house: House, http: TestClient) -> None:
    answer = http.head(path(kept(house)), headers={"Range": "bytes=0-9"})
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (206, "10", b"")


def test_link_is_valid_for_one_job_and_one_hour(house: House, http: TestClient) -> None:
    job, other = kept(house), kept(house)
    answer = http.post(path(job))
    assert answer.headers["cache-control"] == "no-store"
    link = answer.json()
    keyless = watched(TestClient(house.app, raise_server_exceptions=False))
    assert keyless.get(link["url"]).content == WHOLE
    assert keyless.get(link["url"], headers={"Range": "bytes=0-1"}).status_code == 206
    token = link["url"].partition("=")[2]
    assert keyless.get(path(other, token)).status_code == 401
    assert keyless.get(path(job, "x" + token[1:])).status_code == 401
    assert keyless.get(path(job)).status_code == 401
    assert keyless.get(path(job, "%00%FF")).status_code == 401
    assert keyless.get(path("é", token)).status_code == 401
    with mock.patch.object(time, "time", return_value=time.time() + 3601):
        assert keyless.get(link["url"]).status_code == 401
    house.jobs.command(job, Removed("r"))
    assert keyless.get(link["url"]).status_code == 404


def test_audio_and_link_require_project_key(house: House, http: TestClient) -> None:
    job = kept(house)
    house.directory.keys["another"] = Principal("another", "organization")
    for method in ("GET", "POST"):
        assert http.request(method, path(job), headers={"X-Api-Key": "another"}).status_code == 404
        assert http.request(method, path(new_id())).status_code == 404


def test_audio_not_kept_returns_404(house: House, http: TestClient) -> None:
    job, token = house.jobs.create(SOUND), apikeys.new(KeyKind.AUDIO)
    house.directory.links[token] = AudioLink("project", "organization", job, 2**60)
    for answer in (http.get(path(job)), http.post(path(job)), http.get(path(job, token))):
        assert answer.status_code == 404
        assert "keep_audio_seconds" in answer.json()["error"]


def test_audio_lost_from_log_returns_500(house: House, http: TestClient) -> None:
    job = kept(house)
    house.jobs.jobs[job].parts.clear()
    answer = http.get(path(job))
    assert (answer.status_code, answer.headers["earshot-reason"]) == (500, "the audio of the job was not kept")


def test_project_sets_audio_retention(house: House, http: TestClient) -> None:
    for seconds, kept_ms in ((None, 0), (0, 0), (60, 60_000), (10**9, 1000 * OPTIONS.audio_retention_seconds)):
        house.directory.keys[f"key {seconds}"] = Principal("project", "organization", None, Choices(seconds))
        form: Any = {"options": (None, '{"sound_event_detection":true}'), "audio": ("a.wav", b"audio", "audio/wav")}
        job = http.post("/api/v1/analyze_file", files=form, headers={"X-Api-Key": f"key {seconds}"}).json()["job_id"]
        assert house.jobs.jobs[job].head.keep_audio_ms == kept_ms


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("", b"attachment; filename*=UTF-8''recording"),
        (
            'a"; x=y\r\nSet-Cookie: a=b.wav',
            b"attachment; filename*=UTF-8''a%22%3B%20x%3Dy%0D%0ASet-Cookie%3A%20a%3Db.wav",
        ),
        ("../../etc/passwd", b"attachment; filename*=UTF-8''..%2F..%2Fetc%2Fpasswd"),
        ("\ud800.wav", b"attachment; filename*=UTF-8''%3F.wav"),
    ],
)
def test_filename_is_escaped_in_content_disposition(name: str, header: bytes) -> None:
    assert disposition(name) == header
    assert disposition("Straße 犬.wav").decode().endswith("Stra%C3%9Fe%20%E7%8A%AC.wav")
    assert "犬" in unquote(disposition("犬").decode())


def test_content_types_are_mapped_for_browsers(house: House, http: TestClient) -> None:
    raw = "audio/x-raw; rate=16000; format=s16le; channels=1"
    for form, kind, shown in (("mp3", "audio/mp3", "audio/mpeg"), ("raw", raw, raw)):
        source = msgspec.structs.replace(RECORDING, format=form, content_type=kind)
        job = house.jobs.create(SOUND, source, keep_audio_ms=60_000)
        assert http.get(path(job)).headers["content-type"] == shown


async def parts(count: int) -> AsyncGenerator[bytes, None]:
    for _ in range(count):
        yield bytes(1 << 20)


@pytest.mark.parametrize("bound", ["MOST_OF_PROJECT", "MOST_SENT"])
async def test_concurrent_downloads_are_limited(bound: str) -> None:
    """One beyond the bound is refused, and the end of another releases its room."""
    with mock.patch.object(audio, bound, 2):
        quota = download_quota()
        holders = [Holder(f"o{number * (bound == 'MOST_SENT')}", "p") for number in range(3)]
        readers = [sent_pieces(quota, holder, parts(2)) for holder in holders]
        assert max([len(await anext(reader)) for reader in readers[:2]]) == 64 * 1024
        with pytest.raises(Unavailable):
            await anext(readers[2])
        await readers[0].aclose()
        again = sent_pieces(quota, holders[2], parts(2))
        assert sum([len(piece) async for piece in again]) == 2 << 20
        await readers[1].aclose()
    assert not quota.used


def test_error_in_first_piece_releases_quota(house: House, http: TestClient) -> None:
    job = kept(house)
    with mock.patch.object(house.jobs, "audio", side_effect=AudioError("gone")):
        count = audio.MOST_OF_PROJECT + 1
        assert [http.get(path(job)).status_code for _ in range(count)] == [500] * count
    assert http.get(path(job)).status_code == 200


@pytest.fixture
def job(house: House) -> str:
    return house.jobs.create(SOUND, keep_audio_ms=60_000)


def unpacked(data: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return the pixels of a greyscale PNG, uint8[height, width]."""
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image)


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
        *(f"columns={number}&points={number}" for number in ("1000000000", "0", "-1", "1e3")),
        *("start=2&end=1", "start=2&end=2", "start=-1", "start=nan", "start=inf", "start=", "start=0.0000000000001"),
        *("end=1e9", "end=1000000", "end=%D9%A3"),
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


def test_open_interval_ends_with_audio() -> None:
    assert whole_stretch((1.0, None), 4.0) == (1.0, 4.0)
    assert whole_stretch((9.0, None), 4.0) == (9.0, 9.005)
    assert whole_stretch((1.0, 9.0), 4.0) == (1.0, 9.0)


def test_port_and_drawing_constants_agree() -> None:
    assert (port.BANDS, port.RATE, port.STEP) == (picture.BANDS, picture.RATE, picture.STEP)
