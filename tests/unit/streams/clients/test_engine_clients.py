"""The clients of engines: their requests, parsing of answers, and the error of each failure."""

import asyncio
import hashlib
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streams.clients import client
from streams.clients.address import EngineAddress
from streams.clients.chat import ChatClient
from streams.clients.embeddings import MAX_DIMENSION, EmbeddingClient, EmbeddingModel, VoiceEmbedding
from streams.clients.restarts import Restarts
from streams.clients.transcriptions import Transcription, TranscriptionClient
from streams.clients.translations import TranslationClient
from streams.processes.deaths import DEATHS
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.waiting import turn, until
from topics.errors import ServiceFault

pytestmark = pytest.mark.slow

SPEECH, VOICES = "/v1/audio/transcriptions", "/v1/audio/speech/embedding"


def transcribe(engine: HttpEngine, **address: Any) -> Transcription:
    found: Transcription = engine.serve(
        lambda: TranscriptionClient(engine.address(**address)),
        lambda speech: speech.transcribe(b"RIFF", "run-0", model="m", language="ko"),
    )
    return found


def fault(answer: bytes | Callable[[Asked], bytes] | None, **address: Any) -> str:
    with pytest.raises(ServiceFault) as raised:
        transcribe(HttpEngine(answer), **address)
    return str(raised.value)


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("http://box:8000", f"http://box:8000{SPEECH}"),
        ("http://box:8000/", f"http://box:8000{SPEECH}"),
        ("https://api.example.com/v1", f"https://api.example.com{SPEECH}"),
        ("https://example.com/openai/v1/", f"https://example.com/openai{SPEECH}"),
        ("http://box:8080/inference", "http://box:8080/inference"),
        ("http://box/deployments/w/audio?version=2", "http://box/deployments/w/audio?version=2"),
    ],
)
def test_address_determines_endpoint(url: str, called: str) -> None:
    assert EngineAddress(url=url, timeout_s=1).endpoint(SPEECH) == called


@pytest.mark.parametrize(
    "given",
    [
        {"url": "box:8000"},
        {"url": "file:///etc/passwd"},
        {"url": "http://"},
        {"key": "secret\n"},
        {"key": "sécret"},
        {"timeout_s": 0},
        {"limit": 0},
    ],
)
def test_invalid_address_is_rejected_without_showing_key(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="engine") as raised:
        EngineAddress(**{"url": "http://box", "timeout_s": 1.0, **given})
    assert "cret" not in str(raised.value)


def test_address_repr_hides_secrets() -> None:
    address = EngineAddress(url="https://user:pass@box:8443/v1/key-123?token=x", key="secret", timeout_s=1)
    assert repr(address) == str(address) == "EngineAddress(box)"
    assert address.origin == "https://box:8443"


def test_recording_is_sent_by_protocol() -> None:
    engine = HttpEngine(reply({"text": " Hello.", "language": "english", "duration": 1.0}))
    assert transcribe(engine, key="secret") == Transcription(" Hello.", "english")
    (asked,) = engine.asked
    assert asked.path == SPEECH
    assert (asked.headers["idempotency-key"], asked.headers["authorization"]) == ("run-0", "Bearer secret")
    assert asked.fields == {
        "file": [b"RIFF"],
        "model": [b"m"],
        "language": [b"ko"],
        "response_format": [b"verbose_json"],
        "timestamp_granularities[]": [b"word", b"segment"],
    }


def test_local_engine_is_called_without_proxy_or_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    engine = HttpEngine(reply({"text": "Hello."}))
    assert transcribe(engine).text == "Hello."
    assert "authorization" not in engine.asked[0].headers


async def test_deadline_covers_whole_call() -> None:
    """An engine that trickles bytes is late too."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    speech = TranscriptionClient(EngineAddress(url=url, timeout_s=0.1))
    with pytest.raises(ServiceFault, match=r"^the speech engine did not answer within 0\.1 s$"):
        await speech.transcribe(b"", "k")
    await speech.close()
    server.close()


def test_silent_and_unreachable_engines_have_messages() -> None:
    assert fault(None, timeout_s=0.05) == "the speech engine did not answer within 0.05 s"
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        message = fault(b"", url=f"http://127.0.0.1:{held.getsockname()[1]}")
    assert message == "the speech engine does not answer"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(b'{"text": "secret', length=100), "without sending complete message body"),
        (reply(b'{"text": "secret'), "gave no usable answer: Input data was truncated"),
        (reply(b"secret"), "gave no usable answer: JSON is malformed"),
        (reply({"unexpected": "secret"}), "gave no usable answer: Object missing required field `text`"),
        (reply({"text": ["secret"]}), "gave no usable answer: Expected `str`, got `array`"),
        (reply(b'{"text": "\xff secret"}'), "gave no usable answer: "),
        # A lone surrogate could not be written to the log.
        (reply(b'{"text": "\\ud800 secret"}'), "gave no usable answer: "),
        (reply(b"[" * 100_000), "gave no usable answer: "),
        (reply(b'{"text": "a", "words": ' + b"[" * 100_000), "gave no usable answer: "),
        (reply({"text": "secret " * 10_000}), "too long"),
        (reply({"text": "", "words": [{"word": "secret"}] * 10_001}), "too long"),
        (reply({"text": "", "segments": [{"words": [{"word": "secret " * 10_000}]}]}), "too long"),
        (b"no HTTP at all\r\n\r\n", "illegal status line"),
        (b"", "disconnected"),
    ],
)
def test_invalid_body_is_reported_without_its_content(answer: bytes, said: str) -> None:
    message = fault(answer)
    assert said in message
    assert "secret" not in message


def test_oversized_answer_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1000)
    assert fault(reply(b" " * 2000)) == "the answer of the speech engine is larger than 1000 bytes"


LOST = b""
CUT = reply(b'{"te', length=100)
DONE = reply({"text": "Hello."})


@pytest.mark.parametrize(
    ("bundled", "answers", "calls"),
    [
        (False, [LOST, DONE], 2),
        (False, [LOST, LOST, DONE], None),
        (False, [CUT, DONE], None),
        (True, [LOST, LOST, DONE], 3),
        (True, [CUT, LOST, DONE], 3),
        (True, [LOST, LOST, LOST, DONE], None),
        (True, [reply({}, 503), DONE], None),
    ],
)
def test_call_with_broken_connection_is_retried(bundled: bool, answers: list[bytes], calls: int | None) -> None:
    """`calls` is None if the call fails at the last answer before the good one."""
    engine = HttpEngine(lambda asked: answers[len(engine.asked) - 1])
    restarts = Restarts() if bundled else None
    if calls is None:
        with pytest.raises(ServiceFault):
            transcribe(engine, restarts=restarts)
        calls = len(answers) - 1
    else:
        assert transcribe(engine, restarts=restarts).text == "Hello."
    assert [asked.headers["idempotency-key"] for asked in engine.asked] == ["run-0"] * calls


async def test_calls_of_remote_engine_are_retried_at_the_same_time() -> None:
    """A remote engine dies of none of them, so none waits for another."""

    def is_first(asked: Asked) -> bool:
        return any(asked is one for one in engine.asked[:2])

    engine = HttpEngine(lambda asked: LOST if is_first(asked) else DONE)
    engine.may_answer = lambda asked: len(engine.asked) >= (2 if is_first(asked) else 4)
    async with engine.running():
        client = TranscriptionClient(engine.address())
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(client.transcribe(b"RIFF", f"run-{n}") for n in range(2)))
        await client.close()
    assert [answer.text for answer in answers] == ["Hello."] * 2


async def test_request_that_kills_bundled_engine_fails_alone() -> None:
    """Calls broken by a death are repeated in sequence, including those of other clients of the same engine."""
    in_hand: dict[asyncio.StreamWriter, bytes] = {}
    deaths = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal deaths
        body = (await reader.readuntil(b"\r\n\r\n")) + await reader.read(1 << 16)
        in_hand[writer] = body
        if b"deadly" in body:
            if deaths:
                # Time for the others, if they did not wait for this one.
                for _ in range(50):
                    await turn()
            else:
                await until(lambda: len(in_hand) == 3)
            deaths += 1
            while in_hand:
                in_hand.popitem()[0].close()
        await until(lambda: deaths and not any(b"deadly" in one for one in in_hand.values()))
        if in_hand.pop(writer, None) is not None:
            writer.write(reply({"text": "Hello.", "data": [{"embedding": [0.0, 1.0]}]}))
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    address = EngineAddress(url=url, timeout_s=30, restarts=Restarts())
    speech, voices = TranscriptionClient(address), EmbeddingClient(address)
    calls = speech.transcribe(b"deadly", "a"), speech.transcribe(b"RIFF", "b"), voices.embed(b"RIFF", "c")
    guilty, *innocent = await asyncio.gather(*calls, return_exceptions=True)
    await speech.close()
    await voices.close()
    server.close()
    assert str(guilty) == "the speech engine died three times during this request; it is not retried"
    assert [one for one in innocent if isinstance(one, BaseException)] == []
    assert deaths == DEATHS


@pytest.mark.parametrize("status", [301, 307, 400, 502])
async def test_error_status_and_engine_are_named_and_redirects_are_not_followed(status: int) -> None:
    async with HttpEngine(reply({"error": "secret"}, status, head="location: /elsewhere\r\n")).running() as engine:
        address = engine.address()
        speech, chat = TranscriptionClient(address), ChatClient(address)
        translation, voices = TranslationClient(address), EmbeddingClient(address)
        for call, name in (
            (speech.transcribe(b"RIFF", "k"), "ASR Engine"),
            (chat.complete("s", "u", "n", {}, "k"), "Caption"),
            (translation.translate(["a"], "auto", "en", "k"), "Translation"),
            (voices.embed(b"RIFF", "k"), "Speaker"),
        ):
            with pytest.raises(ServiceFault, match=f"^{name} API error: {status}$"):
                await call
        await asyncio.gather(speech.close(), chat.close(), translation.close(), voices.close())
        assert [asked.path for asked in engine.asked] == [SPEECH, "/v1/chat/completions", "/translate", VOICES]


async def test_calls_and_failures_are_counted() -> None:
    engine = HttpEngine(reply({"text": "hello"}))
    async with engine.running():
        speech = TranscriptionClient(engine.address(key="secret"))
        record = speech.record
        await speech.transcribe(b"RIFF", "run-0")
        assert (record.calls, record.failures, record.in_flight, record.failing) == (1, 0, 0, False)
        assert record.latency_ms is not None
        engine.answer = reply({}, 500)
        with pytest.raises(ServiceFault):
            await speech.transcribe(b"RIFF", "run-1")
        assert (record.calls, record.failures, record.failing) == (2, 1, True)
        # Any answer shows that it is reachable; the probe sends no key.
        assert await speech.reachable()
        assert "authorization" not in engine.asked[-1].headers
        engine.answer = reply({"text": "hello"})
        await speech.transcribe(b"RIFF", "run-2")
        assert (record.calls, record.failures, record.failing) == (3, 1, False)
        assert record.error == "ASR Engine API error: 500"
        await speech.close()


async def test_busy_engine_is_reachable_unlike_hung_or_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REACH_SECONDS", 0.1)
    engine = HttpEngine(None)
    async with engine.running():
        hangs, busy = ChatClient(engine.address()), ChatClient(engine.address(limit=1))
        # An engine at its maximum of calls is not probed.
        with busy.record.call():
            assert await busy.reachable()
        assert engine.asked == []
        assert not await hangs.reachable()
        await asyncio.gather(hangs.close(), busy.close())
    # Held, because a port that was let go may be another process's.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        gone = ChatClient(EngineAddress(url=f"http://127.0.0.1:{held.getsockname()[1]}", timeout_s=1))
        assert not await gone.reachable()
        await gone.close()


# --- speaker engines ------------------------------------------------------------------------------------------------


def embed(engine: HttpEngine, **address: Any) -> VoiceEmbedding:
    found: VoiceEmbedding = engine.serve(
        lambda: EmbeddingClient(engine.address(**address)), lambda client: client.embed(b"RIFF", "a-key")
    )
    return found


def answer(vector: object, **told: object) -> bytes:
    return reply({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}], **told})


def test_voice_is_sent_by_protocol() -> None:
    told: dict[str, Any] = {"threshold": 0.25, "threshold_per_doubling": 0.02, "usage": {"total_tokens": 0}}
    engine = HttpEngine(answer([3, 4.0], model="mini", sha256="ab" * 32, **told))
    found = embed(engine, model="mini", key="secret")
    assert found.vector.dtype == np.float32
    assert found.vector.tolist() == pytest.approx([0.6, 0.8])
    assert (found.model, found.threshold, found.per_doubling) == (EmbeddingModel("mini", "ab" * 32), 0.25, 0.02)
    (asked,) = engine.asked
    assert (asked.path, asked.fields) == (VOICES, {"file": [b"RIFF"], "model": [b"mini"]})
    assert (asked.headers["idempotency-key"], asked.headers["authorization"]) == ("a-key", "Bearer secret")


@pytest.mark.parametrize(
    ("told", "asked", "name"), [({"model": "own"}, None, "own"), ({}, "mine", "mine"), ({}, None, "default")]
)
def test_engine_without_hash_is_identified_by_name_and_dimension(
    told: dict[str, str], asked: str | None, name: str
) -> None:
    engine = HttpEngine(answer([1.0, 0.0, 0.0], **told))
    found = embed(engine, model=asked)
    assert found.model == EmbeddingModel(name, hashlib.sha256(f"{name}:3".encode()).hexdigest())
    assert (found.threshold, found.per_doubling) == (None, 0.0)
    assert ("model" in engine.asked[0].fields) == (asked is not None)


@pytest.mark.parametrize(
    "told",
    [
        reply({}),
        reply({"data": []}),
        answer([]),
        answer([1.0]),
        answer([0.0, 0.0]),
        answer([1e308, 1e308]),
        answer("AAAA"),
        answer([1.0, None]),
        answer([1.0] * (MAX_DIMENSION + 1)),
        answer([1.0, 0.0], sha256="../.."),
        answer([1.0, 0.0], threshold=7),
        reply(b'{"data": [{"embedding": [NaN, 1.0]}]}'),
    ],
)
def test_invalid_embedding_is_rejected(told: bytes) -> None:
    with pytest.raises(ServiceFault, match="the speaker engine gave no usable answer"):
        embed(HttpEngine(told))
