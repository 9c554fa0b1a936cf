"""The client and the service's own edge understand each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.client import (
    Client,
    JobConflict,
    JobNotFound,
    JobOptions,
)
from infra.examples import RECORDING
from tests.unit.app.conftest import House, serving
from tests.unit.app.jobs.conftest import ALL, CAPTION_PORTION, INSIGHTS_PORTION, TURNS, sounds, transcript, translated
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
