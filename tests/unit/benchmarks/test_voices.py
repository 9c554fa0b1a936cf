"""UploadPlan of voices as the benchmarks build and post them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.http.multipart import Form
from benchmarks import voices
from benchmarks.cases import speakers
from benchmarks.cases.setup import Setup
from benchmarks.processes import BenchmarkError, ServerProcess
from benchmarks.voices import VoiceClient
from tests.unit.app.client.speakers_stub import ORG_KEY, SpeakerStub
from tests.unit.app.client.stub import serving


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpeakerStub]:
    monkeypatch.setattr(voices, "ORG_KEY", ORG_KEY)
    with serving(SpeakerStub()) as stub:
        yield stub


def port(stub: SpeakerStub | EngineStub) -> int:
    return int(stub.url.rpartition(":")[2])


def client(stub: SpeakerStub) -> VoiceClient:
    return VoiceClient(cast(ServerProcess, SimpleNamespace(port=port(stub))))


def test_a_form_is_what_the_service_reads() -> None:
    audio = bytearray()
    form = Form(b"multipart/form-data; boundary=b", "file", audio.extend, text="speaker")
    form.feed(voices.form("Anna_Kim", b"\r\n--audio"))
    assert (form.close(), bytes(audio)) == (b"Anna_Kim", b"\r\n--audio")


def test_a_large_form_comes_in_pieces() -> None:
    pieces = list(voices.large("Anna_Kim", 3))
    assert b"".join(pieces) == voices.form("Anna_Kim", bytes(3 * voices.MIB))
    assert max(map(len, pieces)) == voices.MIB


def test_voices_come_and_go(stub: SpeakerStub) -> None:
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


def test_the_cost_of_a_key_has_a_bar() -> None:
    (row,) = speakers.keys(Setup(pairs=1, quick=True))
    assert (row.unit, row.bar, row.at_most) == ("us", speakers.KEY_BAR_US, True)
    assert row.value > 0


class EngineStub:
    """A speaker engine that answers with a status."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.asked: list[bytes] = []

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/audio/speech/embedding", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        self.asked.append(await request.body())
        return Response(status_code=self.status)


def test_a_round_of_all_contenders_ends_without_the_speaker(stub: SpeakerStub) -> None:
    def alone(audio: bytes, kind: str) -> tuple[float, float]:
        assert (audio, kind) == (b"audio", "wav")
        return 0.5, 2.0

    body = voices.form("Anna_Kim", b"audio")
    with client(stub) as http, serving(EngineStub()) as engine, voices.EmbeddingConnection(port(engine)) as route:
        taken = speakers._run_round(http, route, body, alone, "wav", b"audio", 3)
        engine.status = 503
        with pytest.raises(BenchmarkError, match="not embedded"):
            route.ask(body)
    assert min(taken.registered, taken.answered) > 0
    assert (taken.decoded, taken.embedded) == (0.5, 2.0)
    assert engine.asked == [body] * 4
    assert stub.requests == ["POST voice"] * 3 + ["DELETE speaker"]
    assert not stub.voices
