"""The packed scores of a job, and how a client decodes them."""

import base64
import math
from unittest import mock

from starlette.testclient import TestClient

from app.jobs import window_scores
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import BOTH, sounds
from topics.jobs import payloads
from topics.jobs.options import Options, Service


def test_scores_match_result(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    portions = [sounds("Dog_bark", "", "Dog_bark Siren"), sounds("", "Speech", first=3), sounds("Siren", first=5)]
    house.jobs.perform(job, Service.SOUND, *portions)
    with mock.patch.object(window_scores, "_PIECE", 6):
        answer = http.get(f"/api/v1/jobs/{job}/scores").json()
    scores = base64.b64decode(answer["scores"], validate=True)
    assert scores == b"".join(payloads.sounds(data).scores for data in portions)
    windows = http.get(f"/api/v1/jobs/{job}").json()["result"]["sound_event_detection"]["results"]
    width, zero = len(answer["tags"]), answer["reported_from"]
    assert (answer["hop_seconds"], answer["window_seconds"]) == (1.0, 2.0)
    for number, window in enumerate(windows):
        row = scores[number * width : (number + 1) * width]
        reported = {
            tag: round(1 / (1 + math.exp(-answer["step"] * (value - zero + 0.5))), 4)
            for tag, value in zip(answer["tags"], row, strict=True)
            if value >= zero
        }
        assert reported == {one["class"]: one["confidence"] for one in window["classes"]}


def test_recording_without_windows_has_no_scores(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND)
    answer = http.get(f"/api/v1/jobs/{job}/scores").json()
    assert (answer["tags"], answer["scores"]) == ([], "")


def test_jobs_without_scores_return_error(house: House, http: TestClient) -> None:
    running = house.jobs.create(BOTH)
    assert http.get(f"/api/v1/jobs/{running}/scores").status_code == 409
    words = house.jobs.create(Options(speech_analysis=True))
    assert http.get(f"/api/v1/jobs/{words}/scores").status_code == 404
    assert http.get(f"/api/v1/jobs/{running}/scores", headers={"X-Api-Key": "another"}).status_code == 401
    other = house.jobs.create(BOTH, project="other")
    assert http.get(f"/api/v1/jobs/{other}/scores").status_code == 404
