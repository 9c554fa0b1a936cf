"""Jobs with the automatically started engines: offline, and across their death."""

from collections.abc import Iterator

import pytest

from tests.contract.jobs import SOUND, SPEECH, Jobs
from tests.contract.speakers import Speakers, data, recording, refused, stretch
from tests.contract.speech import spoken
from tests.process import ORG_KEY, ServiceProcess
from tests.recordings import ANNA, BERT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: On a busy machine these engines are slow.
PATIENCE = {f"{engine}_timeout": "240" for engine in ("speech", "caption", "translation", "speaker")}
EVERYTHING = {**SOUND, **SPEECH, "audio_insights": True, "caption": True, "translation": True}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service as `make run` starts it."""
    data = tmp_path_factory.mktemp("alone") / "data"
    with ServiceProcess(data, bundled_engines="true", job_audio_seconds="600", **PATIENCE) as process:
        yield process


@pytest.fixture
def offline(alone: ServiceProcess) -> Iterator[Jobs]:
    with Jobs(alone) as jobs:
        yield jobs


def test_every_service_works_offline(offline: Jobs) -> None:
    result = offline.result(spoken(), EVERYTHING)
    status = {name: entry["status"] for name, entry in result.items() if name != "metadata"}
    assert set(status.values()) == {"success"}
    speech = result["speech_analysis"]
    assert speech["detected_language"] == "English"
    assert speech["results"][0]["transcript"].endswith(".")
    # English stays unchanged.
    assert speech["results"][0]["translation"] == speech["results"][0]["transcript"]
    assert result["metadata"]["warnings"] == []
    insights = result["audio_insights"]["result"]
    assert insights["contains_speech"] is True
    assert insights["situation_summary"] != result["caption"]["result"]["caption"]


def test_foreign_speech_is_translated_only_into_english(offline: Jobs) -> None:
    """The audio is English but declared French; it suffices that it is transcribed again."""
    french = {**SPEECH, "speech_lang": "fr", "translation": True}
    result = offline.result(spoken(4), french)
    assert result["speech_analysis"]["detected_language"] == "French"
    assert [entry["status"] for name, entry in result.items() if name != "metadata"] == ["success", "success"]
    refused = offline.result(spoken(4), {**french, "translation_target_lang": "ko"})["translation"]
    assert refused["error"].startswith("translation into ko needs an engine: EARSHOT_TRANSLATION_URL is not set")
    unknown = offline.result(spoken(2), {**SPEECH, "speech_lang": "xx"})["speech_analysis"]
    assert (unknown["status"], unknown["error"]) == ("error", "ASR Engine API error: 400")


def test_transcript_voice_is_registered_and_recognised(offline: Jobs, alone: ServiceProcess) -> None:
    both = recording([stretch(ANNA, 0.0, 8.0), stretch(BERT, 0.0, 8.0)])
    job = offline.accepted(both, SPEECH)
    labels = {turn["speaker"] for turn in offline.completed(job)["speech_analysis"]["results"]}
    assert labels == {"SPEAKER_00", "SPEAKER_01"}
    with Speakers(alone, ORG_KEY) as speakers:
        body = {"speaker": "Anna", "job_id": job, "job_speaker": "SPEAKER_01"}
        entry = data(speakers.http.post("/voice", json=body, headers=speakers.keyed))
        assert (entry["speaker"], entry["samples"]) == ("Anna", 1)
        assert 2.0 < entry["total_length"] < 10.0
        turns = offline.result(both, {**SPEECH, "speaker_profile": True})["speech_analysis"]["results"]
        assert {(turn["speaker"], turn["speaker_name"]) for turn in turns} == {
            ("SPEAKER_00", "Unknown 0"),
            ("SPEAKER_01", "Anna"),
        }
        answer = speakers.http.post("/voice", json={**body, "job_speaker": "SPEAKER_07"}, headers=speakers.keyed)
        refused(answer, 200, "the transcript of the job has no such speaker")
        # Deleting the job deletes its audio.
        offline.http.delete(f"/jobs/{job}", headers=offline.keyed)
        refused(speakers.http.post("/voice", json=body, headers=speakers.keyed), 200, "job not found")
