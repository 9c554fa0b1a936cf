"""Jobs through both clients, against a server that loses answers and breaks streams."""

from pathlib import Path
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse

from earshot_client import (
    JobConflict,
    JobNotFound,
    JobOptions,
    QuotaExceeded,
    RequestRefused,
    Turn,
    UnknownFormat,
    WrongKey,
)
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.jobs_stub import FAULTY, JobStub, error, story
from tests.unit.app.client.stub import KEY, WAV

KINDS = ["progress", "partial_result", "completed"]


def test_job_lifecycle_survives_network_faults(jobs: JobStub, wav: Path, shell: Shell) -> None:
    jobs.faults.extend(["lost", "busy"])
    first, second, third = story(jobs.result)
    jobs.connections.extend([first + second[:-1], second + third[:-9]])
    with shell(jobs.url, KEY) as client:
        with wav.open("rb") as file:
            file.seek(100)
            options = JobOptions(speech_analysis=True, speech_lang="ko")
            job = client.analyze_file(file, options, idempotency_key="a key of mine")
        assert (jobs.uploads, list(jobs.jobs), job.status) == (3, ["ja key of"], "accepted")
        sent = jobs.jobs[job.id]
        assert (sent.options, sent.data) == ({"speech_analysis": True, "speech_lang": "ko"}, WAV)
        assert (sent.name, sent.content_type) == ("hörbar.wav", "audio/wav")
        assert int(sent.headers["content-length"]) > len(WAV)
        events = list(client.job_events(job.id))
        assert [one.kind for one in events] == KINDS
        assert jobs.after == [None, "1", "2"]
        assert (events[0].progress.progress, events[0].progress.services["caption"].status) == (0.5, "running")
        assert events[-1].result == client.job(job.id).result == client.job_result(job.id)
        assert [one.kind for one in client.job_events(job.id, "2")] == ["completed"]
        assert client.job_captions(job.id, "srt") == "captions as srt – héllo"
        with pytest.raises(ValueError, match="srt or vtt, not 'ass'"):
            client.job_captions(job.id, cast(Any, "ass"))
        client.delete_job(job.id)
        client.delete_job(job.id)
        with pytest.raises(JobNotFound, match="Not Found"):
            client.job(job.id)


def test_results_are_typed(jobs: JobStub, wav: Path, shell: Shell) -> None:
    with shell(jobs.url, KEY) as client:
        result = client.job_result(client.analyze_file(wav).id)
        assert result.sound_event_detection
        assert [(one.start, [tag.name for tag in one.classes]) for one in result.sound_event_detection.results] == [
            (0, ["Dog_bark"]),
            (1, ["Dog_bark"]),
            (2, []),
        ]
        assert result.speech_analysis
        said = Turn(0.5, 3661.25, "Sit! \u2028 data: [good] dog", "SPEAKER_00", "Unknown 0", -1.0)
        assert result.speech_analysis.results == (said,)
        assert (result.errors, result.caption) == ({}, None)
        jobs.result = FAULTY
        faulty = client.job_result(client.analyze_file(wav).id)
        assert faulty.errors == {"speech_analysis": "ASR Engine API error: 500"}
        assert faulty.audio_insights
        assert faulty.audio_insights.result
        assert faulty.audio_insights.result.notable_events == ("Dog_bark",)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RequestRefused), (401, WrongKey), (402, QuotaExceeded), (404, JobNotFound), (409, JobConflict)],
)
def test_rejections_raise_typed_errors(
    jobs: JobStub, wav: Path, status: int, kind: type[RequestRefused], shell: Shell
) -> None:
    jobs.refusals.append(error(status, "because"))
    with shell(jobs.url, KEY) as client, pytest.raises(kind, match="because") as raised:
        client.analyze_file(wav)
    assert raised.value.status == status


def test_rejection_messages_include_details(jobs: JobStub, wav: Path, shell: Shell) -> None:
    details = [{"type": "extra_forbidden", "loc": ["body", "options", "spech"], "msg": "no"}]
    plain = PlainTextResponse("Internal Server Error", 500, {"Earshot-Reason": "the audio is empty"})
    jobs.refusals.extend([error(422, "Validation error", details=details), plain])
    with shell(jobs.url, KEY) as client:
        with pytest.raises(RequestRefused, match=r"^Validation error: body\.options\.spech \(extra_forbidden\)$"):
            client.analyze_file(wav)
        with pytest.raises(UnknownFormat, match=r"^the audio is empty$"):
            client.analyze_file(wav)


def test_stream_retries_busy_service_but_not_rejection(jobs: JobStub, wav: Path, shell: Shell) -> None:
    with shell(jobs.url, KEY) as client:
        job = client.analyze_file(wav).id
        jobs.refusals.append(error(503, "no owner"))
        assert [one.kind for one in client.job_events(job)] == KINDS
        with pytest.raises(JobNotFound):
            list(client.job_events("another"))
