"""Both clients against a server that loses answers and is busy: nothing is repeated, nothing is missing."""

import inspect
import re
from pathlib import Path

import httpx2
import pytest

from earshot_client import (
    AsyncClient,
    Client,
    Event,
    Sensitivity,
    ServiceUnreachable,
    SessionFailed,
    SessionOptions,
    UnknownFormat,
    WrongKey,
    _media,
)
from earshot_client._version import USER_AGENT
from tests.unit.app.client.conftest import HEARD, Shell
from tests.unit.app.client.stub import KEY, WAV, Stub

PCM = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", Sensitivity(1, {"Speech": -2}))


def names(events: list[Event]) -> list[dict[str, float]]:
    return [{tag.name: tag.probability for tag in event.sounds} for event in events]


def test_stream_survives_lost_answers_and_busy_service(stub: Stub, shell: Shell) -> None:
    with shell(stub.url, KEY) as client:
        session = client.create_session(PCM)
        stub.faults.extend(["lost", "busy", "lost"])
        number = session.chunk_sequence
        for block in (b"a", b"b", b"c", b"d", b"e"):
            number = client.put_chunk(session.id, number, block)
        client.seal_session(session.id)
        assert names(list(client.session_events(session.id))) == HEARD
        assert client.session_status(session.id).state == "readonly"
        assert client.official_tags() == ("Dog_bark", "Speech")
        assert b"".join(stub.only.chunks) == b"abcde"
        assert stub.only.opening["tags_sensitivity"] == {"Speech": -2}
        assert stub.only.opening["default_sensitivity"] == 1
        client.delete_session(session.id)
        client.delete_session(session.id)


def test_file_is_uploaded_in_chunks(stub: Stub, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "street.wav"
    path.write_bytes(WAV + bytes(_media.CHUNK))

    with shell(stub.url, KEY) as client:
        assert names(list(client.detect(path))) == HEARD
    assert [len(chunk) for chunk in stub.only.chunks] == [_media.CHUNK, len(WAV)]
    assert stub.only.opening["content_type"] == "audio/wav"
    assert stub.only.opening["file_name"] == "street.wav"


def test_failures_raise_typed_errors(stub: Stub, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not audio at all")
    stub.error = "not a WAV file"
    with shell(stub.url, KEY) as client:
        with pytest.raises(UnknownFormat, match="not a WAV, MP3"):
            list(client.detect(path))
        path.write_bytes(WAV)
        with pytest.raises(SessionFailed, match="not a WAV file"):
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
