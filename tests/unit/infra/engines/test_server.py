"""The text protocols, over a double of the recogniser."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.types import Message

from infra.engines import CHAT_MODEL, SMALL_MODEL, SPEAKER_MODEL, SPEECH_MODEL, draining, uploads
from infra.engines.admission import AdmissionLimit
from infra.engines.draining import DrainMiddleware
from infra.engines.server import create_app
from infra.engines.speech.speech_models import TOGETHER, SpeechModels, SpeechSettings, make_workers
from infra.engines.speech.worker_protocol import RecognitionRequest
from infra.engines.speech.workers import LIMIT_S, WAITING, Workers
from infra.engines.text import chat
from tests.unit.asgi import Exchange
from tests.waiting import until
from topics.errors import AudioError, EngineError

pytestmark = pytest.mark.slow

DOUBLE = (sys.executable, "-S", "-E", str(Path(__file__).with_name("double.py")))
TRANSCRIBE = "/v1/audio/transcriptions"
CHAT = "/v1/chat/completions"
TRANSLATE = "/v1/audio/translations"


@pytest.fixture
def workers(request: pytest.FixtureRequest, loop: asyncio.Runner) -> Iterator[Workers]:
    made = Workers(DOUBLE, **{"limit": 20.0, **getattr(request, "param", {})})
    yield made
    loop.run(made.close())


def pool(**options: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("workers", [options], indirect=True)


def doubles(workers: Workers, check: Callable[[str], None] = lambda model: None) -> SpeechModels:
    return SpeechModels(SpeechSettings(), lambda model, settings: workers, check)


def client_of(speech: SpeechModels, key: str | None = None) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(speech, key), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://engines")


@pytest.fixture
def speech(workers: Workers) -> SpeechModels:
    return doubles(workers)


@pytest.fixture
def client(speech: SpeechModels) -> httpx2.AsyncClient:
    return client_of(speech)


def loads(workers: Workers) -> int:
    return 0 if workers.worker is None else workers.worker.load


async def transcribed(client: httpx2.AsyncClient, order: str = "good day", **fields: object) -> httpx2.Response:
    return await client.post(TRANSCRIBE, files={"file": ("a.wav", order.encode())}, data=fields)


async def test_transcription_in_every_response_format(client: httpx2.AsyncClient) -> None:
    assert (await transcribed(client)).json() == {"text": "good day"}
    fields: dict[str, Any] = {
        "response_format": "verbose_json",
        "model": SPEECH_MODEL,
        "language": "en-GB",
        "prompt": "hello",
        "temperature": "0",
        "timestamp_granularities[]": ["word", "segment"],
    }
    verbose = (await transcribed(client, **fields)).json()
    assert [word["word"] for word in verbose["words"]] == ["good", "day"]
    assert [part["text"] for part in verbose["segments"]] == ["good day"]
    for form, kind, begins in (
        ("text", "text/plain", "good day\n"),
        ("srt", "application/x-subrip", "1\n00:00:00,250"),
        ("vtt", "text/vtt", "WEBVTT\n\n00:00:00.250"),
    ):
        answer = await transcribed(client, response_format=form)
        assert answer.headers["content-type"].startswith(kind)
        assert answer.text.startswith(begins)


async def test_invalid_transcription_is_rejected_in_openai_format(client: httpx2.AsyncClient) -> None:
    for fields, status, named in (
        ({"response_format": "xml"}, 400, "response_format"),
        ({"timestamp_granularities[]": "letter"}, 400, "timestamp_granularities"),
        ({"language": "klingon"}, 400, "'klingon' is not a known language"),
        ({"likely_language": "xx"}, 400, "likely_language"),
        ({"language": "yue"}, 400, "does not know yue"),
        ({"language": "ko", "model": SMALL_MODEL}, 400, "English only"),
        ({"stream": "true"}, 400, "stream"),
        ({"model": "whisper-1"}, 404, "whisper-1"),
    ):
        answer = await transcribed(client, **fields)
        assert answer.status_code == status
        assert named in answer.json()["error"]["message"]
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert (await transcribed(client, "bad")).json()["error"]["message"] == "the audio is bad"
    assert (await client.post(TRANSCRIBE, data={"file": "text"})).status_code == 400
    assert (await client.post(TRANSCRIBE, content=b"x")).status_code == 400
    long = await client.post(TRANSCRIBE, headers={"content-length": str(uploads.MOST_BYTES + 1)}, content=b"x")
    assert long.status_code == 413


async def test_long_form_of_unknown_length_is_rejected(speech: SpeechModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_BYTES", 1000)
    monkeypatch.setattr(draining, "MOST_S", 0.05)  # Its rest never comes.
    form = b"--b\r\ncontent-disposition: form-data; name=file; filename=a\r\n\r\n"
    app = SimpleNamespace(app=create_app(speech))
    pieces = [form, *[bytes(500)] * 2]
    exchange = await Exchange(app, TRANSCRIBE, "POST", pieces, content_type="multipart/form-data; boundary=b").end()
    assert (exchange.status, exchange.json["error"]["message"]) == (413, "the request is longer than 1000 bytes")


@pytest.mark.parametrize(
    ("workers", "order", "why"),
    [({}, "die", "stopped"), ({"limit": 0.7}, "hang", "too long"), ({}, "broken", "no decoder")],
    indirect=["workers"],
)
async def test_failed_worker_fails_only_its_own_request(
    client: httpx2.AsyncClient, workers: Workers, order: str, why: str
) -> None:
    answer = await transcribed(client, order)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert why in answer.json()["error"]["message"]
    workers._limit = LIMIT_S  # A busy machine starts the next process late.
    assert (await transcribed(client)).json() == {"text": "good day"}


@pool(together=2)
async def test_request_is_retried_if_another_killed_its_worker(client: httpx2.AsyncClient, workers: Workers) -> None:
    held = asyncio.create_task(transcribed(client, "hold on"))
    await until(lambda: loads(workers))
    died = asyncio.create_task(transcribed(client, "die"))
    assert workers.worker is not None
    await workers.worker.process.wait()
    while not (held.done() and died.done()):
        await transcribed(client)
    assert died.result().status_code == 503
    assert held.result().json() == {"text": "hold on"}


async def test_full_queue_returns_503(client: httpx2.AsyncClient, speech: SpeechModels) -> None:
    # The process may have read some: one that hangs could not answer the last request.
    first = [asyncio.create_task(transcribed(client, "hold")) for _ in range(TOGETHER + WAITING)]
    await until(lambda: speech.admission.inside == len(first))
    late = await transcribed(client)
    assert (late.status_code, late.headers["retry-after"]) == (503, "5")
    for task in first:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)
    assert (await transcribed(client)).status_code == 200


@pool(idle_seconds=0.02)
async def test_idle_worker_ends(client: httpx2.AsyncClient, workers: Workers) -> None:
    await transcribed(client)
    worker = workers.worker
    assert worker is not None
    assert await asyncio.wait_for(worker.process.wait(), 60) == 0
    assert (await transcribed(client)).status_code == 200


async def test_stopping_server_answers_waiting_requests_with_503(
    client: httpx2.AsyncClient, workers: Workers, speech: SpeechModels
) -> None:
    waiting = [asyncio.create_task(transcribed(client, "hang")) for _ in range(3)]
    await until(lambda: speech.admission.inside == 3 and loads(workers) == 1)
    await workers.close()
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert [answer.status_code for answer in answers] == [503] * 3


async def test_disconnected_client_frees_its_slot(workers: Workers, speech: SpeechModels) -> None:
    boundary = b"--b\r\ncontent-disposition: form-data; name=file; filename=a\r\n\r\nhang\r\n--b--\r\n"
    app = SimpleNamespace(app=create_app(speech))
    exchange = Exchange(app, TRANSCRIBE, "POST", boundary, content_type="multipart/form-data; boundary=b")
    await until(lambda: speech.admission.inside == 1)
    await exchange.leave()
    assert exchange.status == 503
    assert speech.admission.inside == loads(workers) == 0


async def test_fields_are_passed_to_recogniser(client: httpx2.AsyncClient) -> None:
    fields = {"language": "Portuguese", "likely_language": "english", "prompt": "x" * 5000 + " Zoë"}
    text = (await transcribed(client, "request", **fields)).json()["text"]
    assert text.startswith("language=pt likely=en task=transcribe prompt=xxx")
    assert text.endswith("x Zoë")
    assert len(text) < 2100
    # A hint that the model does not know is dropped.
    text = (await transcribed(client, "request", likely_language="yue")).json()["text"]
    assert text.startswith("language=None likely=None")
    answer = await client.post(
        TRANSLATE, files={"file": ("a.wav", b"request")}, data={"response_format": "verbose_json"}
    )
    assert answer.json()["text"] == "language=None likely=None task=translate prompt="
    assert answer.json()["task"] == "translate"
    refused = await client.post(TRANSLATE, files={"file": ("a.wav", b"good")}, data={"model": SMALL_MODEL})
    assert refused.status_code == 400
    assert "cannot translate" in refused.json()["error"]["message"]


@pool(together=8)
async def test_one_worker_serves_concurrent_requests(client: httpx2.AsyncClient, workers: Workers) -> None:
    held = [asyncio.create_task(transcribed(client, f"hold {n}")) for n in range(3)]
    gone = asyncio.create_task(transcribed(client, "hold on"))
    await until(lambda: loads(workers) == 4)
    gone.cancel()
    assert (await transcribed(client, "go")).json() == {"text": "go"}
    assert [(await one).json()["text"] for one in held] == ["hold 0", "hold 1", "hold 2"]
    assert loads(workers) == 0


@pytest.mark.parametrize("at", ["start", "load"])
async def test_wrong_weights_fail_with_reason(at: str, workers: Workers) -> None:
    def check(model: str) -> None:
        if at == "start":
            raise EngineError("model.bin: not the file that the manifest was made for")

    client = client_of(doubles(workers, check))
    for order in ("unloadable", "unloadable" if at == "load" else "good day"):
        answer = await transcribed(client, order)
        assert answer.status_code == 500
        message = answer.json()["error"]["message"]
        assert message.startswith(f"model: {SPEECH_MODEL} cannot be loaded here: ")
        assert "/" not in message


async def test_passing_fault_of_model_ends(workers: Workers) -> None:
    faults = [EngineError("model.bin: Too many open files")]

    def check(model: str) -> None:
        if faults:
            raise faults.pop()

    client = client_of(doubles(workers, check))
    statuses = [(await transcribed(client, order)).status_code for order in ("good day", "unloadable", "good day")]
    assert statuses == [500, 500, 200]


def asked(content: object, **more: object) -> dict[str, object]:
    text = content if isinstance(content, str) else json.dumps(content)
    messages = [{"role": "system", "content": "say it"}, {"role": "user", "content": text}]
    return {"model": CHAT_MODEL, "messages": messages, **more}


TAGS = [{"tag": f"{number}", "start": 0, "end": 1} for number in range(1001)]
BARK = {"tag": "Dog_bark", "start": 1.0, "end": 3.0, "peak": 0.9}


async def test_chat_describes_scene(client: httpx2.AsyncClient) -> None:
    heard = {"task": "caption", "duration_seconds": 8.0, "events": [BARK], "transcript": [], "unavailable": []}
    body = (await client.post(CHAT, json=asked(heard))).json()
    content = body["choices"][0]["message"]["content"]
    assert json.loads(content) == {"caption": "A dog barks around 2 s."}
    assert body["model"] == CHAT_MODEL
    again = (await client.post(CHAT, json=asked(heard))).json()
    assert (again["choices"], again["id"]) == (body["choices"], body["id"])
    told = (await client.post(CHAT, json=asked({**heard, "task": "audio_insights"}))).json()
    insights = json.loads(told["choices"][0]["message"]["content"])
    assert insights["notable_events"] == ["Dog_bark"]
    assert insights["keywords"] is None
    parts = [{"type": "input_audio", "input_audio": {}}, {"type": "text", "text": json.dumps(heard)}]
    pieces = {"messages": [{"role": "user", "content": parts}]}
    assert (await client.post(CHAT, json=pieces)).json()["choices"] == body["choices"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"no json", "body: not JSON"),
        (json.dumps({"messages": []}).encode(), "no user message"),
        (json.dumps(asked("what is this?")).encode(), '{"task": "caption"'),
        (json.dumps(asked({"task": "poem", "duration_seconds": 1})).encode(), "task"),
        (json.dumps(asked({"task": "caption", "duration_seconds": -1})).encode(), "duration_seconds"),
        (json.dumps(asked({"task": "caption", "duration_seconds": 1}, stream=True)).encode(), "stream"),
        (json.dumps(asked({"task": "caption", "duration_seconds": 1, "events": TAGS})).encode(), "1001 different tags"),
    ],
)
async def test_invalid_chat_request_is_rejected_with_reason(
    body: bytes, named: str, client: httpx2.AsyncClient
) -> None:
    answer = await client.post(CHAT, content=body)
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]


async def test_chat_requests_are_limited_and_answered_beside_the_loop(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, free = threading.Event(), threading.Event()

    def held(request: object) -> str:
        at_work.set()
        assert free.wait(60)
        return "{}"

    monkeypatch.setattr(chat, "answer", held)
    monkeypatch.setattr(chat, "_admission", AdmissionLimit(1, "text", 1))
    body = asked({"task": "caption", "duration_seconds": 1})
    first = asyncio.create_task(client.post(CHAT, json=body))
    await asyncio.to_thread(at_work.wait, 60)
    late = await client.post(CHAT, json=body)
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    free.set()
    assert (await first).status_code == 200


async def test_slow_body_is_rejected(client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(uploads, "UPLOAD_S", 0.05)
    answer = await client.post(CHAT, content=slow())
    assert answer.status_code == 400
    assert "did not arrive within 0.05 s" in answer.json()["error"]["message"]


async def test_other_routes_answer(client: httpx2.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == [
        *(SPEECH_MODEL, SMALL_MODEL),
        *(SPEAKER_MODEL, CHAT_MODEL),
    ]
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    missing = await client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")
    assert (await client.get(CHAT)).status_code == 405


async def test_every_route_except_health_check_requires_key(speech: SpeechModels) -> None:
    key = "a key of the engines"
    async with client_of(speech, key) as client:
        for sent in ("", "Bearer", f"Bearer {key}x", f"Basic {key}", key, "Bearer \xff"):
            for path in ("/v1/models", CHAT, "/v1/nothing"):
                answer = await client.get(path, headers={b"authorization": sent.encode("latin-1")})
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/v1/models", headers={"authorization": f"bearer {key}"})).status_code == 200


async def test_worker_rejects_invalid_audio(tmp_path: Path) -> None:
    (tmp_path / "recording").write_bytes(b"no audio at all" * 10)
    workers = make_workers(SPEECH_MODEL, SpeechSettings())
    with pytest.raises(AudioError, match="not a supported audio file"):
        await workers.transcribe(RecognitionRequest(0, str(tmp_path / "recording")))
    await workers.close()


@pytest.mark.parametrize(("most", "read", "headers"), [(9, 3, []), (2, 2, [(b"connection", b"close")])])
async def test_early_answer_waits_for_request_body(
    monkeypatch: pytest.MonkeyPatch, most: int, read: int, headers: list[tuple[bytes, bytes]]
) -> None:
    """If that is far away, the connection closes after the answer."""
    monkeypatch.setattr("infra.engines.draining.MOST_BYTES", most)
    parts = [{"type": "http.request", "body": b"x", "more_body": more} for more in (False, True, True)]
    order: list[str] = []
    told: list[tuple[bytes, bytes]] = []

    async def receive() -> Message:
        order.append("read")
        return parts.pop()

    async def send(message: Message) -> None:
        order.append(message["type"])
        told.extend(message.get("headers", []))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body"})

    await DrainMiddleware(app)({"type": "http"}, receive, send)
    assert order == ["read"] * read + ["http.response.start", "http.response.body"]
    assert told == headers


async def test_browser_origins_are_rejected_without_key(speech: SpeechModels) -> None:
    """A page of any site can post to an address of the visitor's machine."""
    async with client_of(speech) as client:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:8100"):
            answer = await client.post(CHAT, json={}, headers={"Origin": origin})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
