"""Speakers through both clients, against a server that loses answers and is busy."""

import io
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from earshot_client import (
    AsyncClient,
    Client,
    EngineUnavailable,
    ReEnrollment,
    RequestRefused,
    ServiceBusy,
    ServiceUnreachable,
    SpeakerProfile,
    SpeakerRequestRefused,
    SpeakerTurn,
    WrongKey,
)
from tests.unit.app.client.conftest import Shell
from tests.unit.app.client.speakers_stub import ORG_KEY, SpeakerStub, refusal
from tests.unit.app.client.stub import KEY, WAV

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


def test_rejections_raise_typed_errors(speakers: SpeakerStub, wav: Path, shell: Shell) -> None:
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
