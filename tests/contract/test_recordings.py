"""Kept recordings: pictures and audio, by permission, until they are deleted."""

import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.audio import encoded, noise
from tests.contract.jobs import Jobs
from tests.process import ServiceProcess
from tests.recordings import SIREN
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def keeping(service: ServiceProcess) -> Iterator[Jobs]:
    """A project that keeps the audio of its jobs for an hour."""
    with Jobs(service, service.project(f"keeping {time.monotonic_ns()}")) as jobs:
        answer = jobs.http.patch("/project", json={"keep_audio_seconds": 3600}, headers=jobs.keyed)
        assert answer.json()["keep_audio_seconds"] == 3600
        yield jobs


def drawn(jobs: Jobs, path: str) -> httpx2.Response:
    """Return a picture, once it is rendered."""

    def asked() -> httpx2.Response | None:
        answer = jobs.http.get(path, headers=jobs.keyed)
        return None if answer.status_code == 503 else answer

    return wait_for(asked)


@pytest.mark.both_logs
def test_audio_is_returned_as_sent(keeping: Jobs) -> None:
    audio = encoded(noise(1_300_000))
    job = keeping.accepted(audio, filename="Straße 犬.wav")
    keeping.completed(job)
    answer = keeping.http.get(f"/jobs/{job}/audio", headers=keeping.keyed)
    assert answer.content == audio
    assert answer.headers["content-disposition"].endswith("Stra%C3%9Fe%20%E7%8A%AC.wav")
    # Across the boundary of two parts of the log.
    part = keeping.http.get(f"/jobs/{job}/audio", headers={**keeping.keyed, "Range": "bytes=1048570-1048590"})
    assert (part.status_code, part.content) == (206, audio[1048570:1048591])


@pytest.mark.both_logs
def test_waveform_and_spectrogram_are_served(keeping: Jobs) -> None:
    job = keeping.accepted(SIREN.read_bytes(), kind="audio/ogg")
    waveform = drawn(keeping, f"/jobs/{job}/waveform?points=50")
    assert waveform.headers["earshot-seconds"] == "5.000"
    peaks = waveform.json()
    assert (peaks["length"], peaks["samples_per_pixel"]) == (50, 1600)
    assert max(peaks["data"]) > 20
    picture = drawn(keeping, f"/jobs/{job}/spectrogram?start=1&end=2&columns=100")
    assert picture.content.startswith(b"\x89PNG")
    assert keeping.http.delete(f"/jobs/{job}", headers=keeping.keyed).status_code == 204
    for view in ("audio", "waveform", "spectrogram"):
        assert keeping.http.get(f"/jobs/{job}/{view}", headers=keeping.keyed).status_code == 404


def test_demo_project_keeps_audio_for_one_day(jobs: Jobs) -> None:
    project = jobs.http.get("/project", headers=jobs.keyed).json()
    assert project["keep_audio_seconds"] == project["longest_keep_audio_seconds"] == 86_400
