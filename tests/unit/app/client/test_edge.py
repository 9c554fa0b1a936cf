"""The client and the service's own edge understand each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.client import (
    Client,
    EngineUnavailable,
    JobConflict,
    JobNotFound,
    JobOptions,
    ReEnrollment,
    RequestRefused,
    SpeakerRequestRefused,
    UnknownFormat,
    WrongKey,
)
from infra.examples import RECORDING
from tests.unit.app.conftest import ORG_KEY, House, serving
from tests.unit.app.jobs.conftest import ALL, CAPTION_PORTION, INSIGHTS_PORTION, TURNS, sounds, transcript, translated
from topics import errors
from topics.errors import AudioError
from topics.jobs.options import Service

EVERYTHING = JobOptions(
    sound_event_detection=True,
    speech_analysis=True,
    audio_insights=True,
    caption=True,
    translation=True,
    translation_target_lang="en",
)


def test_a_job() -> None:
    house = House()
    with serving(house) as running, Client(running.url, running.key, sleep=lambda seconds: None) as client:
        job = client.analyze_file(Path(RECORDING), EVERYTHING, idempotency_key="k")
        assert client.analyze_file(Path(RECORDING), EVERYTHING, idempotency_key="k") == job
        with pytest.raises(JobConflict):
            client.analyze_file(Path(RECORDING), idempotency_key="k")
        accepted = house.jobs.jobs[job.id].accepted
        assert accepted
        assert (accepted.options, accepted.source.filename) == (ALL, Path(RECORDING).name)
        assert b"".join(house.jobs.jobs[job.id].parts.values()) == Path(RECORDING).read_bytes()
        with pytest.raises(JobConflict):
            client.job_captions(job.id, "vtt")
        house.jobs.perform(job.id, Service.SOUND, sounds("Siren", "Siren", ""), audio_ms=4000)
        house.jobs.perform(job.id, Service.SPEECH, transcript(*TURNS))
        house.jobs.perform(job.id, Service.INSIGHTS, INSIGHTS_PORTION)
        house.jobs.perform(job.id, Service.CAPTION, CAPTION_PORTION)
        house.jobs.perform(job.id, Service.TRANSLATION, translated("Good morning.", "Good day."), warnings=("a note",))
        events = list(client.job_events(job.id))
        assert [one.kind for one in events] == ["partial_result"] * 5 + ["progress", "completed"]
        assert events[-2].progress.services["caption"].progress == 1.0
        result = events[-1].result
        assert result == client.job_result(job.id) == client.job(job.id).result
        assert result.sound_event_detection
        assert [[one.name for one in window.classes] for window in result.sound_event_detection.results] == [
            ["Siren"],
            ["Siren"],
            [],
        ]
        assert result.speech_analysis
        assert [turn.translation for turn in result.speech_analysis.results] == ["Good morning.", "Good day."]
        assert result.audio_insights
        assert result.audio_insights.result
        assert result.audio_insights.result.keywords == ("hello",)
        assert result.caption
        assert result.caption.result
        assert result.caption.result.caption == "Two people greet each other."
        assert result.translation
        assert (result.translation.target_lang, len(result.translation.results)) == ("en", 2)
        assert (result.errors, result.metadata["warnings"]) == ({}, ["a note"])
        assert client.job_captions(job.id, "srt").startswith("1\n")
        client.delete_job(job.id)
        with pytest.raises(JobNotFound):
            list(client.job_events(job.id))


def test_refusals() -> None:
    house = House()
    with serving(house) as running, Client(running.url, running.key, sleep=lambda seconds: None) as client:
        with pytest.raises(RequestRefused, match="audio_insights requires both"):
            client.analyze_file(Path(RECORDING), JobOptions(speech_analysis=True, audio_insights=True))
        with pytest.raises(RequestRefused, match=r"Validation error: body\.options\.speech_lang"):
            client.analyze_file(Path(RECORDING), JobOptions(speech_analysis=True, speech_lang="no language at all"))
        house.prober.failure = AudioError("the audio is empty")
        with pytest.raises(UnknownFormat, match="the audio is empty"):
            client.analyze_file(Path(RECORDING))


def test_speakers(tmp_path: Path) -> None:
    house = House()
    voice = tmp_path / "고양이.wav"
    voice.write_bytes(b"12345")
    with serving(house) as running, Client(running.url, org_key=ORG_KEY, sleep=lambda seconds: None) as client:
        assert client.speakers() == ()
        anna = client.add_voice("Anna_Kim", voice)
        assert (anna.name, anna.total_length, anna.samples, anna.is_compatible) == ("Anna_Kim", 5.0, 1, True)
        assert client.speakers() == (anna,)
        (turn,) = client.recognize(voice)
        assert (turn.name, turn.is_registered, turn.score, turn.start_ms, turn.end_ms) == (
            "Anna_Kim",
            True,
            1.0,
            30,
            5000,
        )
        house.speakers.organizations["organization"]["Anna_Kim"].compatible = False
        assert client.re_enroll("Anna_Kim") == ReEnrollment("Anna_Kim", 1, 0)
        client.delete_speaker("Anna_Kim")
        (turn,) = client.recognize(voice)
        assert (turn.name, turn.is_registered, turn.score) == ("Unknown 0", False, -1.0)
        with pytest.raises(SpeakerRequestRefused, match="speaker not found"):
            client.delete_speaker("Anna_Kim")
        with pytest.raises(SpeakerRequestRefused, match="only alphabet, number and underscore are allowed"):
            client.add_voice("Anna Kim", voice)
        house.speakers.failure = errors.EngineAway("why is for the log")
        with pytest.raises(EngineUnavailable, match=r"^speaker service unavailable$"):
            client.add_voice("Anna_Kim", voice)
        with pytest.raises(EngineUnavailable, match=r"^recognition service unavailable$"):
            client.recognize(voice)
        with Client(running.url, org_key=running.key) as stranger, pytest.raises(WrongKey):
            stranger.speakers()
