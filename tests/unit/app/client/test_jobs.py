"""Jobs through both shells, against a server that loses answers and breaks off streams."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from app.client import (
    AsyncClient,
    Client,
    EarshotClientError,
    JobConflict,
    JobDeleted,
    JobEvent,
    JobNotFound,
    JobOptions,
    QuotaExceeded,
    RequestRefused,
    ServiceUnreachable,
    Turn,
    UnknownFormat,
    WrongKey,
)
from tests.unit.app.client.jobs_stub import FAULTY, JobStub, error, event, story
from tests.unit.app.client.stub import KEY, WAV
from tests.unit.app.client.test_client import no_pause

KINDS = ["progress", "partial_result", "completed"]


def client(stub: JobStub, key: str = KEY) -> Client:
    return Client(stub.url, key, sleep=lambda seconds: None)


def test_a_job_from_beginning_to_end(jobs: JobStub, wav: Path) -> None:
    jobs.faults.extend(["lost", "busy"])
    first, second, third = story(jobs.result)
    jobs.connections.extend([first + second[:-1], second + third[:-9]])
    with client(jobs) as shell:
        job = shell.analyze_file(wav, JobOptions(speech_analysis=True, speech_lang="ko"))
        assert (jobs.uploads, list(jobs.jobs), job.status) == (3, [job.id], "accepted")
        sent = jobs.jobs[job.id]
        assert (sent.options, sent.data) == ({"speech_analysis": True, "speech_lang": "ko"}, WAV)
        assert (sent.name, sent.content_type) == ("hörbar.wav", "audio/wav")
        assert int(sent.headers["content-length"]) > len(WAV)
        events = list(shell.job_events(job.id))
        assert [one.kind for one in events] == KINDS
        assert jobs.after == [None, "1", "2"]
        assert (events[0].progress.progress, events[0].progress.services["caption"].status) == (0.5, "running")
        assert events[-1].result == shell.job(job.id).result == shell.job_result(job.id)
        assert [one.kind for one in shell.job_events(job.id, "2")] == ["completed"]
        assert shell.job_captions(job.id, "srt") == "captions as srt – héllo"
        shell.delete_job(job.id)
        shell.delete_job(job.id)
        with pytest.raises(JobNotFound, match="Not Found"):
            shell.job(job.id)


def test_the_same_on_asyncio(jobs: JobStub, wav: Path) -> None:
    async def run() -> list[JobEvent]:
        async with AsyncClient(jobs.url, KEY, sleep=no_pause) as shell:
            jobs.faults.extend(["lost", "busy"])
            with wav.open("rb") as file:
                file.seek(100)
                job = await shell.analyze_file(file, idempotency_key="a key of mine")
            assert job.id == "ja key of"
            assert jobs.jobs[job.id].data == WAV
            assert jobs.jobs[job.id].options == {"sound_event_detection": True, "speech_analysis": True}
            jobs.connections.append(story(jobs.result)[0])
            events = [one async for one in shell.job_events(job.id)]
            jobs.connections.append(story(jobs.result)[0])
            assert await shell.job_result(job.id) == (await shell.job(job.id)).result
            assert await shell.job_captions(job.id, "vtt") == "captions as vtt – héllo"
            await shell.delete_job(job.id)
            with pytest.raises(JobNotFound):
                await shell.job_result(job.id)
            return events

    assert [one.kind for one in asyncio.run(run())] == KINDS


def test_results_have_types(jobs: JobStub, wav: Path) -> None:
    with client(jobs) as shell:
        result = shell.job_result(shell.analyze_file(wav).id)
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
        faulty = shell.job_result(shell.analyze_file(wav).id)
        assert faulty.errors == {"speech_analysis": "ASR Engine API error: 500"}
        assert faulty.audio_insights
        assert faulty.audio_insights.result
        assert faulty.audio_insights.result.notable_events == ("Dog_bark",)


class Spying(io.BytesIO):
    """A file that knows how much of it was asked for at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        self.most = max(self.most, 1 << 40 if size is None or size < 0 else size)
        return super().read(size)


def test_a_recording_is_read_in_pieces(jobs: JobStub) -> None:
    file = Spying(bytes(3 << 20))
    with client(jobs) as shell:
        job = shell.analyze_file(file, name="tone.pcm", content_type="audio/x-raw; rate=8000; format=s16le")
    assert len(jobs.jobs[job.id].data) == 3 << 20
    assert jobs.jobs[job.id].content_type == "audio/x-raw"
    assert 0 < file.most <= 1 << 20


@pytest.mark.parametrize(
    ("status", "kind"),
    [(402, QuotaExceeded), (404, JobNotFound), (409, JobConflict), (400, RequestRefused), (413, RequestRefused)],
)
def test_refusals_have_names(jobs: JobStub, wav: Path, status: int, kind: type[RequestRefused]) -> None:
    jobs.refusals.append(error(status, "because"))
    with client(jobs) as shell, pytest.raises(kind, match="because") as raised:
        shell.analyze_file(wav)
    assert raised.value.status == status


def test_a_wrong_key(jobs: JobStub, wav: Path) -> None:
    with client(jobs, "another") as shell, pytest.raises(WrongKey, match="Invalid API key"):
        shell.analyze_file(wav)


def test_refusals_say_what_they_know(jobs: JobStub, wav: Path) -> None:
    details = [{"type": "extra_forbidden", "loc": ["body", "options", "spech"], "msg": "no"}]
    plain = PlainTextResponse("Internal Server Error", 500, {"Earshot-Reason": "the audio is empty"})
    jobs.refusals.extend([error(422, "Validation error", details=details), plain])
    with client(jobs) as shell:
        with pytest.raises(RequestRefused, match=r"^Validation error: body\.options\.spech \(extra_forbidden\)$"):
            shell.analyze_file(wav)
        with pytest.raises(UnknownFormat, match=r"^the audio is empty$"):
            shell.analyze_file(wav)


def test_a_stream_waits_for_a_busy_service_and_not_for_one_that_refuses(jobs: JobStub, wav: Path) -> None:
    with client(jobs) as shell:
        job = shell.analyze_file(wav).id
        jobs.refusals.append(error(503, "no owner"))
        assert [one.kind for one in shell.job_events(job)] == KINDS
        with pytest.raises(JobNotFound):
            list(shell.job_events("another"))


def test_a_job_that_is_removed_meanwhile(jobs: JobStub, wav: Path) -> None:
    with client(jobs) as shell:
        job = shell.analyze_file(wav).id
        jobs.connections.append(event("error", {"error": "ask again"}, 0))
        assert [one.kind for one in shell.job_events(job)] == KINDS, "it went on elsewhere"
        jobs.removing = True
        with pytest.raises(JobDeleted, match="the job was removed"):
            shell.job_result(job)


def test_a_stream_that_only_ends(jobs: JobStub, wav: Path) -> None:
    with client(jobs) as shell:
        job = shell.analyze_file(wav).id
        jobs.connections.extend([b": ping\n\n"] * 6)
        with pytest.raises(ServiceUnreachable, match="the stream ended"):
            list(shell.job_events(job))


def test_no_file_and_nobody_there(jobs: JobStub, tmp_path: Path, wav: Path) -> None:
    with client(jobs) as shell, pytest.raises(FileNotFoundError):
        shell.analyze_file(tmp_path / "none.wav")
    assert issubclass(JobDeleted, EarshotClientError)
    with (
        Client("http://127.0.0.1:9", KEY, sleep=lambda s: None) as shell,
        pytest.raises(ServiceUnreachable, match="refused"),
    ):
        shell.analyze_file(wav)
