"""Reading a job of a running service: entries, their errors, the event stream, captions and removal."""

import re

import pytest

from tests.contract.api import RATE, Api, events, tone, wav
from tests.contract.jobs import ALL, SPEECH, Jobs
from tests.contract.speech import broken_flac, spoken
from tests.recordings import SIREN, clips
from tests.stub_engines import CHAT, TRANSLATE, WORDS, StubEngines
from tests.stub_engines import SPEECH as SPEECH_PATH

SERVICES = {"sound_event_detection", "speech_analysis", "audio_insights", "caption", "translation"}


@pytest.fixture(scope="session")
def talk() -> bytes:
    """Some seconds of speech as a WAV."""
    return spoken()


@pytest.mark.both_logs
def test_sound_events_use_two_second_windows_every_second(jobs: Jobs) -> None:
    entry = jobs.result(SIREN.read_bytes(), filename="siren.ogg", kind="audio/ogg")["sound_event_detection"]
    assert entry["status"] == "success"
    assert [window["start_time_sec"] for window in entry["results"]] == [0.0, 1.0, 2.0, 3.0]
    first = entry["results"][0]
    assert first.keys() == {"id", "start_time", "end_time", "start_time_sec", "end_time_sec", "classes"}
    assert (first["start_time"], first["end_time"], first["end_time_sec"]) == ("00:00.00", "00:02.00", 2.0)
    for window in entry["results"]:
        assert "Siren" in [found["class"] for found in window["classes"]]
        confidences = [found["confidence"] for found in window["classes"]]
        assert confidences == sorted(confidences, reverse=True)
        assert all(found.keys() == {"class", "confidence", "id"} for found in window["classes"])


@pytest.mark.both_logs
def test_jobs_report_same_tags_as_sessions(api: Api, jobs: Jobs) -> None:
    """A job's window has the tags of the session windows that begin in its first second, however short."""
    short = clips("dog")[0].read_bytes()
    session = api.create("file", "audio/ogg")
    api.send(session, short)
    api.seal(session)
    heard = [{tag["name"] for tag in event["tags"]} - {"Others"} for event in events(api.follow(session))]
    windows = jobs.result(short, filename="dog.ogg", kind="audio/ogg")["sound_event_detection"]["results"]
    assert len(windows) == len(heard) // 2
    ends = [*range(2, 2 * len(windows), 2), len(heard)]
    for number, (window, end) in enumerate(zip(windows, ends, strict=True)):
        assert {found["class"] for found in window["classes"]} == set().union(*heard[2 * number : end])
    assert any("Dog_bark" in tags for tags in heard)


def test_metadata_describes_input_and_processed_audio(jobs: Jobs) -> None:
    recording = wav(tone(1.0))
    assert jobs.result(recording, filename="Straße.wav")["metadata"] == {
        "audio": {
            "input": {
                "filename": "Straße.wav",
                "format": "wav",
                "size_bytes": len(recording),
                "content_type": "audio/x-wav",
            },
            "processed": {
                "sample_rate_hz": RATE,
                "channels": 1,
                "encoding": "pcm_f32le",
                "resampled": False,
                "downmixed": False,
            },
        },
        "warnings": [],
    }


@pytest.mark.both_logs
def test_every_service_has_result_entry(jobs: Jobs, talk: bytes, engines: StubEngines) -> None:
    job = jobs.accepted(talk, ALL)
    result = jobs.completed(job)
    entries = {name: entry["status"] for name, entry in result.items() if name != "metadata"}
    assert entries == dict.fromkeys(SERVICES, "success")
    segments = result["speech_analysis"]["results"]
    assert segments
    for segment in segments:
        assert re.fullmatch(r"SPEAKER_\d\d", segment["speaker"])
        assert (segment["speaker_name"], segment["speaker_score"]) == (f"Unknown {int(segment['speaker'][-2:])}", -1.0)
        assert segment["translation"] == f"<{segment['transcript']}>"
        assert segment["item_ids"] == {}
        assert segment["start_time_sec"] < segment["end_time_sec"]
    assert " ".join(WORDS) in " ".join(segment["transcript"] for segment in segments)
    insights = result["audio_insights"]
    assert insights["result"]["detected_language"] == "English"
    assert insights["item_ids"].keys() == insights["result"].keys()
    assert result["caption"]["result"] == {"caption": "Somebody speaks."}
    assert result["translation"]["target_lang"] == "ko"
    vtt, srt = (jobs.http.get(f"/jobs/{job}/captions.{kind}").text for kind in ("vtt", "srt"))
    assert vtt.startswith("WEBVTT\n")
    assert "<v Unknown 0>" in vtt
    assert re.match(r"1\n\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}\n", srt)


def test_recording_without_speech_skips_speech_engine(jobs: Jobs, engines: StubEngines) -> None:
    before = engines.calls[SPEECH_PATH]
    result = jobs.result(wav(tone(3.0)), {**SPEECH, "translation": True})
    assert result["speech_analysis"] == {"status": "success", "results": []}
    assert result["translation"]["results"] == []
    assert engines.calls[SPEECH_PATH] == before


@pytest.mark.parametrize("fault", [301, 404, 503, "hang", "cut", "wrong"])
def test_fault_of_engine_fails_only_its_entries(
    jobs: Jobs, talk: bytes, engines: StubEngines, fault: int | str
) -> None:
    engines.faults = {SPEECH_PATH: fault, CHAT: fault, TRANSLATE: fault}
    result = jobs.result(talk, ALL)
    assert result["sound_event_detection"]["status"] == "success"
    failed = {name: result[name] for name in ("speech_analysis", "audio_insights", "caption", "translation")}
    for entry in failed.values():
        assert (entry.keys(), entry["status"], bool(entry["error"])) == ({"status", "error"}, "error", True)
    if isinstance(fault, int):
        assert failed["speech_analysis"]["error"] == f"ASR Engine API error: {fault}"
        assert failed["audio_insights"]["error"] == failed["caption"]["error"] == f"Caption API error: {fault}"


@pytest.mark.both_logs
def test_silence_stands_for_damage_of_a_recording(jobs: Jobs) -> None:
    result = jobs.result(broken_flac())
    entry = result["sound_event_detection"]
    assert entry["status"] == "success"
    assert entry["results"][-1]["end_time_sec"] == pytest.approx(20.0, abs=0.5)
    assert any("silence stands there" in warning for warning in result["metadata"]["warnings"])


@pytest.mark.both_logs
def test_event_stream_reports_progress_and_resumes(jobs: Jobs, talk: bytes, engines: StubEngines) -> None:
    job = jobs.accepted(talk, ALL)
    events = list(jobs.events(job))
    names = [event for event, _, _ in events]
    assert names[-1] == "completed"
    assert set(names) <= {"progress", "partial_result", "completed"}
    assert {data["service"] for event, _, data in events if event == "partial_result"} == SERVICES
    assert events[-1][2] == jobs.completed(job)
    numbers = [int(number) for _, number, _ in events]
    assert numbers == sorted(numbers)
    # A resumed stream sends only newer events, and the end.
    last = next(int(number) for event, number, _ in reversed(events) if event == "partial_result")
    again = [event for event, _, _ in jobs.events(job, after=last)]
    assert "partial_result" not in again
    assert again[-1] == "completed"
    assert jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed).status_code == 204
    for path in ("", "/stream", "/captions.vtt", "/captions.srt"):
        gone = jobs.http.get(f"/jobs/{job}{path}", headers=jobs.keyed)
        assert (gone.status_code, gone.json()) == (404, {"error": "Not Found"})
    assert jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed).status_code == 404
