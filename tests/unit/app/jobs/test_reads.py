"""Reading and deleting a job: what appears when, for whom, its memory use, its windows and packed scores."""

import asyncio
import base64
import json
import math
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.http.streaming import PIECE_BYTES, coalesced
from app.jobs import window_scores
from app.jobs.errors import job_error
from app.windows import PIECE, WindowRenderer
from tests.unit.app.conftest import KEY, House
from tests.unit.app.double import STRONG, TAGS
from tests.unit.app.jobs import conftest as jobs
from tests.unit.app.jobs.conftest import ALL, BOTH, SOUND, Exchange, alone, sounds, transcript
from tests.waiting import until
from topics.errors import AudioError, EngineError
from topics.jobs import payloads
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Overlap, Transcript, Word
from topics.jobs.records import Portion, Started
from topics.jobs.rules import JobState
from topics.keys import new_id
from topics.ports.directory import Principal
from topics.scores import probability, threshold
from topics.times import clock

METADATA = {
    "audio": {
        "input": {"filename": "a b.wav", "format": "wav", "size_bytes": 1234, "content_type": "audio/x-wav"},
        "processed": {
            "sample_rate_hz": 16000, "channels": 1, "encoding": "pcm_f32le", "resampled": True, "downmixed": True,
        },
    },
    "warnings": [],
}  # fmt: skip


def read(http: TestClient, job: str) -> dict[str, Any]:
    answer = http.get(f"/api/v1/jobs/{job}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    body: dict[str, Any] = answer.json()
    return body


def test_entries_appear_when_their_services_end(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.conclude(job, Started(Service.SPEECH, "one"))
    house.jobs.conclude(job, Portion(Service.SPEECH, "one", 0, transcript(*jobs.TURNS), 0.5))
    assert read(http, job)["status"] == "processing"
    assert read(http, job)["result"].keys() == {"metadata"}
    house.jobs.perform(job, Service.SOUND, sounds(""))
    assert read(http, job)["status"] == "processing"
    assert read(http, job)["result"].keys() == {"sound_event_detection", "metadata"}
    house.jobs.perform(job, Service.SPEECH, transcript(*jobs.TURNS), run="two")
    assert read(http, job)["status"] == "completed"
    assert list(read(http, job)["result"]) == ["sound_event_detection", "speech_analysis", "metadata"]


def test_successful_result_of_every_service(house: House, http: TestClient) -> None:
    job = house.jobs.create(msgspec.structs.replace(ALL, word_times=True))
    house.jobs.perform(job, Service.SOUND, sounds("Speech Dog_bark"), sounds("", "Siren", first=1), warnings=("quiet",))
    words, overlaps = (Word(4600, 5000, "Good"),), (Overlap(8660, 8910, 0, "Unknown 0"),)
    first = msgspec.structs.replace(jobs.TURNS[0], words=words, overlap_ms=250, overlaps=overlaps)
    last = payloads.encode(Transcript((jobs.TURNS[1],), languages=("en", "de")))
    house.jobs.perform(job, Service.SPEECH, transcript(first), last, warnings=("noisy",))
    house.jobs.perform(job, Service.INSIGHTS, jobs.INSIGHTS_PORTION)
    house.jobs.perform(job, Service.CAPTION, jobs.CAPTION_PORTION)
    house.jobs.perform(job, Service.TRANSLATION, jobs.translated("Good morning.", "Good day."))
    result = read(http, job)["result"]
    times = {"start_time": "00:04.60", "end_time": "00:08.91", "start_time_sec": 4.6, "end_time_sec": 8.91}
    later = {"start_time": "00:09.00", "end_time": "00:11.50", "start_time_sec": 9.0, "end_time_sec": 11.5}
    assert result == {
        "sound_event_detection": {
            "status": "success",
            "results": [
                {
                    "id": "w0", "start_time": "00:00.00", "end_time": "00:02.00", "start_time_sec": 0.0,
                    "end_time_sec": 2.0,
                    "classes": [
                        {"class": "Speech", "confidence": probability(STRONG), "id": "w0-2"},
                        {"class": "Dog_bark", "confidence": probability(STRONG - 5), "id": "w0-0"},
                    ],
                },
                {
                    "id": "w1", "start_time": "00:01.00", "end_time": "00:03.00", "start_time_sec": 1.0,
                    "end_time_sec": 3.0, "classes": [],
                },
                {
                    "id": "w2", "start_time": "00:02.00", "end_time": "00:04.00", "start_time_sec": 2.0,
                    "end_time_sec": 4.0,
                    "classes": [{"class": "Siren", "confidence": probability(STRONG), "id": "w2-1"}],
                },
            ],
        },
        "speech_analysis": {
            "status": "success",
            "detected_language": "English, German",
            "results": [
                {
                    "transcript": "Good morning.", **times, "speaker": "SPEAKER_01", "speaker_name": "Anna_Kim",
                    "speaker_score": 0.4124, "item_ids": {}, "translation": "Good morning.",
                    "words": [{"word": "Good", "start_time_sec": 4.6, "end_time_sec": 5.0}], "overlap_sec": 0.25,
                    "overlaps": [
                        {
                            "start_time_sec": 8.66, "end_time_sec": 8.91, "speaker": "SPEAKER_00",
                            "speaker_name": "Unknown 0",
                        },
                    ],
                },
                {
                    "transcript": "Guten Tag.", **later, "speaker": "SPEAKER_00", "speaker_name": "Unknown 0",
                    "speaker_score": -1.0, "item_ids": {}, "translation": "Good day.", "words": [],
                },
            ],
        },
        "audio_insights": {
            "status": "success",
            "result": {
                "contains_speech": True, "detected_language": "English, German", "primary_sound_environment": "Kitchen",
                "situation_summary": "Two people greet.", "notable_events": ["Dog_bark"],
                "speech_content_summary": "Greetings", "keywords": ["hello"],
            },
            "item_ids": {
                field: f"insights-{field}"
                for field in (
                    "contains_speech", "detected_language", "primary_sound_environment", "situation_summary",
                    "notable_events", "speech_content_summary", "keywords",
                )
            },
        },
        "caption": {"status": "success", "result": {"caption": "Two people greet each other."}},
        "translation": {
            "status": "success",
            "target_lang": "en",
            "results": [
                {"transcript": "Good morning.", "translation": "Good morning.", **times},
                {"transcript": "Guten Tag.", "translation": "Good day.", **later},
            ],
        },
        "metadata": {**METADATA, "warnings": ["quiet", "noisy"]},
    }  # fmt: skip
    assert b'"start_time_sec":0.0,"end_time_sec":2.0,' in http.get(f"/api/v1/jobs/{job}").content


def test_errors_are_reported_beside_results(house: House, http: TestClient) -> None:
    job = house.jobs.create(ALL)
    house.jobs.perform(job, Service.SOUND, sounds("Siren"), error="the node broke")
    house.jobs.perform(job, Service.SPEECH, error="ASR Engine API error: 500")
    house.jobs.perform(job, Service.CAPTION, jobs.CAPTION_PORTION, error="Caption API error: 404")
    house.jobs.perform(job, Service.INSIGHTS)
    house.jobs.perform(job, Service.TRANSLATION, jobs.translated("half"), error="")
    result = read(http, job)["result"]
    broken = result.pop("sound_event_detection")
    assert (broken["status"], broken["error"], len(broken["results"])) == ("error", "the node broke", 1)
    assert result.pop("audio_insights")["status"] == "success"
    assert result == {
        "speech_analysis": {"status": "error", "error": "ASR Engine API error: 500"},
        "caption": {"status": "error", "error": "Caption API error: 404"},
        "translation": {"status": "error", "error": ""},
        "metadata": METADATA,
    }
    assert read(http, job)["status"] == "completed"


def test_failed_translation_adds_no_text_to_transcript(house: House, http: TestClient) -> None:
    job = house.jobs.create(ALL)
    house.jobs.perform(job, Service.SPEECH, transcript(*jobs.TURNS))
    assert "translation" not in read(http, job)["result"]["speech_analysis"]["results"][0]
    house.jobs.perform(job, Service.TRANSLATION, jobs.translated("half"), error="gone")
    assert "translation" not in read(http, job)["result"]["speech_analysis"]["results"][0]


def test_empty_results_are_empty_lists(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND)
    house.jobs.perform(job, Service.SPEECH, transcript())
    result = read(http, job)["result"]
    assert result["sound_event_detection"] == result["speech_analysis"] == {"status": "success", "results": []}


def test_hour_long_recording_has_hours_in_all_times(house: House, http: TestClient) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.perform(job, Service.SOUND, sounds("", ""), sounds("", first=3599), audio_ms=3_600_000)
    windows = read(http, job)["result"]["sound_event_detection"]["results"]
    assert [window["end_time"] for window in windows] == ["00:00:02.00", "00:00:03.00", "01:00:00.00"]


def test_job_is_visible_only_to_its_project(house: House, http: TestClient) -> None:
    job = house.jobs.create(SOUND)
    house.directory.keys["another"] = Principal("other project", "organization")
    path = f"/api/v1/jobs/{job}"
    for method in ("GET", "DELETE"):
        none = http.request(method, path, headers={"X-Api-Key": ""})
        assert (none.status_code, none.json()) == (401, {"error": "API key required"})
        bad = http.request(method, path, headers={"X-Api-Key": "bad"})
        assert (bad.status_code, bad.json()) == (401, {"error": "Invalid API key"})
        others = http.request(method, path, headers={"X-Api-Key": "another"})
        for unknown in (new_id(), "short", "é" * 24):
            answer = http.request(method, f"/api/v1/jobs/{unknown}")
            assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
            assert answer.content == others.content
    assert read(http, job)["status"] == "accepted"


def test_job_being_received_returns_404(house: House, http: TestClient) -> None:
    job = house.jobs.create(SOUND)
    head = house.jobs.jobs[job].head
    house.jobs.jobs[job].head = msgspec.structs.replace(head, state=JobState.RECEIVING)
    assert http.get(f"/api/v1/jobs/{job}").status_code == 404


def test_routing_errors_have_json_body(http: TestClient) -> None:
    for path in ("/api/v1/nothing", "/api/v3", "/api/v1/jobs/a/b/c"):
        answer = http.get(path)
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    wrong = http.put("/api/v1/jobs/abc")
    assert (wrong.status_code, wrong.json()) == (405, {"error": "Method Not Allowed"})
    assert wrong.headers["allow"] == "DELETE, GET, HEAD"


def test_internal_error_is_plain_text(house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    job = house.jobs.create(SOUND)

    monkeypatch.setattr(house.jobs, "view", mock.Mock(side_effect=RuntimeError("secret")))
    answer = http.get(f"/api/v1/jobs/{job}")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["content-type"].startswith("text/plain")


def long_job(house: House, portions: int = 20) -> str:
    """Return a job with a few hundred KiB of results."""
    job = house.jobs.create(SOUND)
    each = [sounds(*["Siren Knock"] * 100, first=100 * number) for number in range(portions)]
    house.jobs.perform(job, Service.SOUND, *each)
    return job


async def test_long_result_is_rendered_while_sending(house: House) -> None:
    job = long_job(house)
    portion = mock.Mock(wraps=house.jobs.portion)
    house.jobs.portion = portion  # type: ignore[method-assign]
    exchange = Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY)
    exchange.reading.clear()
    for _ in range(50):
        await asyncio.sleep(0)
    assert 0 < portion.call_count <= 12, "a client that does not read keeps the rest in the table"
    exchange.reading.set()
    await exchange.end()
    assert (exchange.status, exchange.whole) == (200, True)
    assert "content-length" not in exchange.headers
    windows = json.loads(exchange.body)["result"]["sound_event_detection"]["results"]
    assert [window["id"] for window in windows] == [f"w{number}" for number in range(2000)]
    assert {len(window["classes"]) for window in windows} == {2}
    assert [call.args[2] for call in portion.call_args_list] == list(range(20))
    head = await Exchange(house, f"/api/v1/jobs/{job}", "HEAD", x_api_key=KEY).end()
    assert (head.status, head.body, head.whole) == (200, b"", True)
    await until(alone)


async def test_disconnected_or_stalled_client_ends_rendering(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.streaming.STALLED_SECONDS", 0.02)
    job = long_job(house)
    gone = Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY)
    await gone.until(bool)
    await gone.leave()
    stalled = Exchange(house, f"/api/v1/jobs/{job}", x_api_key=KEY)
    await stalled.until(bool)
    stalled.reading.clear()
    await stalled.end()
    assert not gone.whole
    assert not stalled.whole
    await until(alone)


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


def test_jobs_without_windows_have_no_scores(house: House, http: TestClient) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND)
    answer = http.get(f"/api/v1/jobs/{job}/scores").json()
    assert (answer["tags"], answer["scores"]) == ([], "")
    running = house.jobs.create(BOTH)
    words = house.jobs.create(Options(speech_analysis=True))
    assert http.get(f"/api/v1/jobs/{words}/scores").status_code == 404
    assert http.get(f"/api/v1/jobs/{running}/scores").status_code == 409
    other = house.jobs.create(BOTH, project="other")
    assert http.get(f"/api/v1/jobs/{other}/scores").status_code == 404


def naive(first: int, scores: bytes, audio_ms: int) -> list[dict[str, Any]]:
    """Return every window, testing every tag."""
    windows = []
    for number in range(len(scores) // len(TAGS)):
        row = scores[number * len(TAGS) : (number + 1) * len(TAGS)]
        found = sorted((-stored, tag) for tag, stored in enumerate(row) if stored >= threshold(0))
        windows.append(
            {
                "id": f"w{first + number}",
                "start_time": clock((first + number) * 1000, hours=False),
                "end_time": clock(min((first + number + 2) * 1000, audio_ms), hours=False),
                "start_time_sec": float(first + number),
                "end_time_sec": min(float(first + number + 2), audio_ms / 1000),
                "classes": [
                    {"class": TAGS[tag], "confidence": probability(-minus), "id": f"w{first + number}-{tag}"}
                    for minus, tag in found
                ],
            }
        )
    return windows


@settings(max_examples=30, deadline=None)
@given(
    first=st.integers(0, 40_000),
    scores=st.binary(max_size=8 * len(TAGS)),
    copies=st.sampled_from([1, PIECE // 3]),
    last_ms=st.integers(1, 2000),
)
def test_windows_match_naive_rendering(first: int, scores: bytes, copies: int, last_ms: int) -> None:
    scores = scores[: len(scores) // len(TAGS) * len(TAGS)] * copies
    audio_ms = (first + max(len(scores) // len(TAGS), 1) - 1) * 1000 + last_ms
    pieces = list(WindowRenderer(TAGS).job_windows(first, scores, hours=False, audio_ms=audio_ms))
    assert json.loads(b"[" + b",".join(pieces) + b"]") == naive(first, scores, audio_ms)


def test_tag_names_are_escaped() -> None:
    (piece,) = WindowRenderer(['100 % "sure" %d']).job_windows(7, b"\xff", hours=False, audio_ms=9000)
    (found,) = json.loads(piece)["classes"]
    assert (found["class"], found["id"]) == ('100 % "sure" %d', "w7-0")


def test_small_pieces_are_coalesced() -> None:
    small, large = b"x" * 1000, b"y" * PIECE_BYTES
    pieces = list(coalesced([small] * 100 + [large] + [small]))
    assert b"".join(pieces) == small * 100 + large + small
    assert all(len(piece) >= PIECE_BYTES for piece in pieces[:-1])
    assert len(pieces) == 3
    assert list(coalesced([])) == []


def test_audio_error_reason_is_safe_header_value() -> None:
    reply = job_error(500, AudioError("bad\r\nSet-Cookie: a\x00b ☃ é" + "x" * 1000))
    assert (reply.status, reply.body) == (500, b"Internal Server Error")
    reason = dict(reply.headers)[b"earshot-reason"]
    assert reason.startswith(b"bad  Set-Cookie: a b ? \xe9xxx")
    assert len(reason) == 500
    inside = job_error(500, EngineError("secret path"))
    assert (inside.body, b"earshot-reason" in dict(inside.headers)) == (b"Internal Server Error", False)
