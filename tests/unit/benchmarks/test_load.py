"""Parts of the load generator: requests, answers cut anywhere, audio, processes, voices."""

import asyncio
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.responses import JSONResponse

from app.http.multipart import Form
from benchmarks import profile, voices
from benchmarks.client import LoadError, extract
from benchmarks.processes import BenchmarkError, ServerProcess
from benchmarks.voices import VoiceClient
from benchmarks.wire import HttpConnection
from tests.unit.app.client.speakers_stub import ORG_KEY, SpeakerStub
from tests.unit.app.client.stub import serving

ANSWER = b'HTTP/1.1 200 OK\r\ndate: x\r\nContent-Length: 7\r\n\r\n{"a":1}'


def fed(pieces: list[bytes]) -> tuple[int, bytes] | None:
    async def scene() -> tuple[int, bytes] | None:
        connection = HttpConnection()
        connection._answer = asyncio.get_running_loop().create_future()
        for piece in pieces:
            connection.data_received(piece)
        return connection._answer.result() if connection._answer.done() else None

    return asyncio.run(scene())


@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
def test_answer_split_anywhere_is_parsed(cut: int) -> None:
    assert fed([ANSWER[:cut], ANSWER[cut:]]) == (200, b'{"a":1}')
    assert fed([ANSWER[:cut]]) is None


def test_answer_without_body_is_parsed() -> None:
    assert fed([b"HTTP/1.1 204 No Content\r\ndate: x\r\n\r\n"]) == (204, b"")


def test_missing_pattern_in_answer_raises_load_error() -> None:
    with pytest.raises(LoadError, match="is not in b'nothing'"):
        extract(re.compile(rb'"count":([0-9]+)'), b"nothing")


def test_thread_cpu_is_divided_by_samples() -> None:
    text = """thread (7): main;x (uvicorn/x.py:2);audio_bytes (app/http/bodies.py:9);decode (y.py:3) 6
thread (7): main;x (uvicorn/x.py:2) 2
thread (8): inference;run (streams/models/sound_engine.py:4) 1
thread (8): inference;wait (concurrent/futures/thread.py:81) 100"""
    spent = profile.seconds(profile.collapsed(text), {7: 4.0, 8: 5.0, 9: 1.0})
    assert spent == {"JSON and base64": 3.0, "HTTP": 1.0, "model": 5.0, profile.OTHER_THREADS: 1.0}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpeakerStub]:
    monkeypatch.setattr(voices, "ORG_KEY", ORG_KEY)
    with serving(SpeakerStub()) as stub:
        yield stub


def port(stub: SpeakerStub) -> int:
    return int(stub.url.rpartition(":")[2])


def client(stub: SpeakerStub) -> VoiceClient:
    return VoiceClient(cast(ServerProcess, SimpleNamespace(port=port(stub))))


def test_service_parses_generated_form() -> None:
    audio = bytearray()
    form = Form(b"multipart/form-data; boundary=b", "file", audio.extend, text="speaker")
    form.feed(voices.form("Anna_Kim", b"\r\n--audio"))
    assert (form.close(), bytes(audio)) == (b"Anna_Kim", b"\r\n--audio")


def test_voice_client_adds_and_removes_voices(stub: SpeakerStub) -> None:
    body = voices.form("Anna_Kim", b"audio")
    with client(stub) as http:
        stub.refusals.append(JSONResponse({"data": None, "error": "speaker service unavailable"}, 502))
        http.wait(body, "Anna_Kim")
        assert stub.requests == ["POST voice", "POST voice", "DELETE speaker"]
        assert http.add(body) > 0
        assert http.post(voices.large("Bo", 2)) == ""
        assert {name: list(map(len, given)) for name, given in stub.voices.items()} == {
            "Anna_Kim": [5],
            "Bo": [2 * voices.MIB],
        }
        with pytest.raises(BenchmarkError, match="not registered: an empty file"):
            http.add(voices.form("Anna_Kim", b""))
