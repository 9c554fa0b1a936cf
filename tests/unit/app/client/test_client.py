"""Sessions, jobs and speakers through both clients, against a server that loses answers, breaks streams and is busy."""

import inspect
import io
import re
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from earshot_client import (
    AsyncClient,
    Client,
    EngineUnavailable,
    JobConflict,
    JobNotFound,
    JobOptions,
    QuotaExceeded,
    ReEnrollment,
    RequestRefused,
    Sensitivity,
    ServiceBusy,
    ServiceUnreachable,
    SessionFailed,
    SessionOptions,
    SpeakerProfile,
    SpeakerRequestRefused,
    SpeakerTurn,
    Turn,
    UnknownFormat,
    WrongKey,
    _media,
)
from earshot_client._calls import RETRIES
from earshot_client._version import USER_AGENT
from tests.contract.api import silence, tone, wav
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.jobs_stub import FAULTY, JobStub, error, story
from tests.unit.app.client.speakers_stub import ORG_KEY, SpeakerStub, refusal
from tests.unit.app.client.stub import WAV, Stub
from tests.unit.app.conftest import KEY
from tests.unit.app.double import TAGS

PCM = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", Sensitivity(1, {"Speech": -2}))


BLOCKS = [tone(0.5), tone(0.5), silence(0.5), tone(0.25), silence(1.0)]


def sent(client: Client) -> str:
    """Send the blocks to a new session, and return its id."""
    session = client.create_session(PCM)
    number = session.chunk_sequence
    for block in BLOCKS:
        number = client.put_chunk(session.id, number, block)
    client.seal_session(session.id)
    return session.id


def test_stream_survives_lost_answers_and_busy_service(stub: Stub, shell: Shell) -> None:
    with shell(stub.url, KEY) as client:
        undisturbed = list(client.session_events(sent(client)))
        stub.faults.extend(["lost", "busy", "lost"])
        session = sent(client)
        assert list(client.session_events(session)) == undisturbed != []
        assert client.session_status(session).state == "readonly"
        assert client.official_tags() == TAGS
        stored = stub.house.sessions.sessions[session]
        assert (stored.chunks, len(stub.faults)) == (BLOCKS, 0)
        assert (stored.opened.default_sensitivity, stored.opened.tags_sensitivity) == (1, {"Speech": -2})
        client.delete_session(session)
        client.delete_session(session)


def test_file_is_uploaded_in_chunks(stub: Stub, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(wav(tone(40.0)))
    with shell(stub.url, KEY) as client:
        assert [event.start for event in client.detect(path)] == [number / 2 for number in range(79)]
    assert [len(chunk) for chunk in stub.only.chunks] == [_media.CHUNK, path.stat().st_size - _media.CHUNK]
    assert (stub.only.opened.content_type, stub.only.opened.file_name) == ("audio/wav", "street.wav")


def test_failures_raise_typed_errors(stub: Stub, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not audio at all")
    with shell(stub.url, KEY) as client:
        with pytest.raises(UnknownFormat, match="not a WAV, MP3"):
            list(client.detect(path))
        path.write_bytes(WAV)
        with pytest.raises(SessionFailed, match="declared audio/wav"):
            list(client.detect(path))
    with shell(stub.url, "another key") as client, pytest.raises(WrongKey, match="Invalid API key"):
        client.create_session(PCM)


def test_unreachable_service_raises(shell: Shell) -> None:
    with shell("http://127.0.0.1:9", KEY) as client, pytest.raises(ServiceUnreachable, match=r"refused|failed"):
        client.create_session(PCM)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (WAV, "audio/wav"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "audio/rf64"),
        (b"FORM\x00\x00\x00\x00AIFFCOMM", "audio/aiff"),
        (b"FORM\x00\x00\x00\x00AIFCFVER", "audio/aiff"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"fLaC\x00", "audio/flac"),
        (b"ID3\x04\x00", "audio/mp3"),
        (b"\xff\xfb\x90\x64", "audio/mp3"),
        (b"\xff\xf3\x40\xc4", "audio/mp3"),
        (b"\0\0\0\x1cftypM4A ", "audio/mp4"),
        (b"\x1a\x45\xdf\xa3\x9f", "audio/webm"),
        (b"\xff\xf1\x50\x80", None),
        (b"\xff", None),
        (b"RIFF\x00\x00\x00\x00AVI LIST", None),
        (b"", None),
    ],
)
def test_content_type_is_detected_from_first_bytes(head: bytes, kind: str | None) -> None:
    assert _media.content_type(head) == kind


@pytest.mark.parametrize("agent", [USER_AGENT, "kennel/2"])
def test_user_agent_is_sent(agent: str, shell: Shell) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        agents.append(request.headers["User-Agent"])
        return httpx2.Response(200, json=[])

    agents: list[str] = []
    transport = httpx2.MockTransport(answer)
    with shell("http://earshot", transport=transport, user_agent=agent) as client:
        client.official_tags()
    assert agents == [agent]


def test_default_user_agent() -> None:
    assert re.fullmatch(r"earshot-client/\d+\.\d+\.\d+ python/3\.\d+\.\d+", USER_AGENT)
    for cls in Client, AsyncClient:
        assert inspect.signature(cls).parameters["user_agent"].default == USER_AGENT


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


def test_damaged_compression_raises(jobs: JobStub, wav: Path, shell: Shell) -> None:
    with shell(jobs.url, KEY) as client:
        job = client.analyze_file(wav).id
        for call in (lambda: client.analyze_file(wav), lambda: list(client.job_events(job))):
            damaged = PlainTextResponse("not compressed", headers={"Content-Encoding": "gzip"})
            jobs.refusals.extend([damaged] * (1 + len(RETRIES)))
            with pytest.raises(ServiceUnreachable, match="decompress"):
                call()
            jobs.refusals.clear()


def test_stream_retries_busy_service_but_not_rejection(jobs: JobStub, wav: Path, shell: Shell) -> None:
    with shell(jobs.url, KEY) as client:
        job = client.analyze_file(wav).id
        jobs.refusals.append(error(503, "no owner"))
        assert [one.kind for one in client.job_events(job)] == KINDS
        with pytest.raises(JobNotFound):
            list(client.job_events("another"))


ANNA = SpeakerProfile("Anna_Kim", "2026-11-21T08:00:00.000Z", 10.5, 1, True)


def test_speaker_lifecycle_survives_faults(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    speakers.faults.extend(["busy", "lost", "lost"])
    with shell(speakers.url, org_key=ORG_KEY) as client:
        assert client.speakers() == ()
        speakers.faults.append("busy")
        assert client.add_voice("Anna_Kim", wav) == ANNA
        assert speakers.voices == {"Anna_Kim": [WAV]}
        file = io.BytesIO(WAV)
        file.seek(100)
        assert client.add_voice("Anna_Kim", file).samples == 2
        assert speakers.voices["Anna_Kim"][1] == WAV
        assert [one.name for one in client.speakers()] == ["Anna_Kim"]
        assert client.re_enroll("Anna_Kim") == ReEnrollment("Anna_Kim", 2, 0)
        client.delete_speaker("Anna_Kim")
        assert client.speakers() == ()


def test_turns_are_typed(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    speakers.faults.extend(["lost", "busy"])
    with shell(speakers.url, org_key=ORG_KEY) as client:
        anna, unknown, short = client.recognize(wav)
    assert anna == SpeakerTurn(30, 29_980, "Good [morning]\x1b[2J.", 0, "Anna_Kim", 0.731, organization="o1")
    assert [(one.is_registered, one.unlabeled) for one in (anna, unknown, short)] == [
        (True, False),
        (False, False),
        (False, True),
    ]


def test_unsendable_key_raises() -> None:
    for make in Client, AsyncClient:
        for key, org_key in ("line\n", ""), ("", "kl\u00fc"):
            with pytest.raises(WrongKey):
                make("http://127.0.0.1:9", key, org_key=org_key)


def test_unanswered_voice_upload_is_not_retried(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    speakers.faults.append("lost")
    with shell(speakers.url, org_key=ORG_KEY) as client, pytest.raises(ServiceUnreachable):
        client.add_voice("Anna_Kim", wav)
    assert speakers.requests == ["POST voice"]


def test_removal_is_never_retried(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    with shell(speakers.url, org_key=ORG_KEY) as client:
        client.add_voice("Anna_Kim", wav)
        speakers.refusals.append(refusal(503, "a voice file will be deleted later"))
        with pytest.raises(ServiceBusy, match="a voice file will be deleted later"):
            client.delete_speaker("Anna_Kim")
        speakers.faults.append("lost")
        with pytest.raises(ServiceUnreachable):
            client.delete_speaker("Anna_Kim")
    assert speakers.requests == ["POST voice", "DELETE speaker", "DELETE speaker"]


def test_unavailable_engine_is_not_retried(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    speakers.refusals.extend(
        [refusal(502, "speaker service unavailable"), refusal(502, "recognition service unavailable")]
    )
    with shell(speakers.url, org_key=ORG_KEY) as client:
        with pytest.raises(EngineUnavailable, match=r"^speaker service unavailable$"):
            client.add_voice("Anna_Kim", wav)
        with pytest.raises(EngineUnavailable, match=r"^recognition service unavailable$"):
            client.recognize(wav)
    assert speakers.requests == ["POST voice", "POST recognition"]


def test_rejection_has_service_message(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    with shell(speakers.url, org_key=ORG_KEY) as client:
        with pytest.raises(SpeakerRequestRefused, match="only alphabet, number and underscore") as raised:
            client.add_voice("Anna Kim", wav)
        assert raised.value.status == 200
        with pytest.raises(SpeakerRequestRefused, match="an empty file"):
            client.add_voice("Anna_Kim", io.BytesIO())
        for call in (client.delete_speaker, client.re_enroll):
            with pytest.raises(SpeakerRequestRefused, match="speaker not found"):
                call("nobody")


def test_speaker_rejections_raise_typed_errors(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
    with shell(speakers.url, org_key=ORG_KEY) as client:
        speakers.refusals.append(refusal(400, "no multipart"))
        with pytest.raises(RequestRefused, match="no multipart"):
            client.recognize(wav)
        speakers.refusals.append(PlainTextResponse("Bad Gateway", 502))
        with pytest.raises(EngineUnavailable, match="the service answered 502"):
            client.recognize(wav)


@pytest.mark.parametrize("body", [{"data": None, "error": "", "debug": ""}, {"data": {}}, [1], {"error": ""}])
def test_invalid_envelope_raises(speakers: SpeakerStub, body: object, shell: Shell) -> None:
    speakers.refusals.append(JSONResponse(body))
    with (
        shell(speakers.url, org_key=ORG_KEY) as client,
        pytest.raises(ServiceUnreachable, match="is not an Earshot service"),
    ):
        client.speakers()


@pytest.mark.parametrize("key", ["", "another"])
def test_wrong_key_raises(speakers: SpeakerStub, wav: Path, key: str, shell: Shell) -> None:
    with shell(speakers.url, org_key=key) as client, pytest.raises(WrongKey, match="organization not found"):
        client.add_voice("Anna_Kim", wav)
    with shell(speakers.url, KEY) as client, pytest.raises(WrongKey, match="organization not found"):
        client.speakers()
