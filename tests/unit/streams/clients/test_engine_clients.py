"""The clients of engines: what they send, and what each way to fail is called."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest

from streams.clients import client
from streams.clients.address import EngineAddress
from streams.clients.chat import ChatClient
from streams.clients.embeddings import EmbeddingClient
from streams.clients.restarts import Restarts
from streams.clients.transcriptions import Transcription, TranscriptionClient
from streams.clients.translations import TranslationClient
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.waiting import until
from topics.errors import ServiceFault
from topics.folding import DEATHS

SPEECH = "/v1/audio/transcriptions"


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
def test_an_address_says_where_the_engine_is_called(url: str, called: str) -> None:
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
def test_an_address_that_cannot_work_is_refused_without_its_key(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="engine") as raised:
        EngineAddress(**{"url": "http://box", "timeout_s": 1.0, **given})
    assert "cret" not in str(raised.value)


def test_nothing_shows_a_key() -> None:
    address = EngineAddress(url="http://user:pass@box", key="secret", timeout_s=1)
    assert repr(address) == str(address) == "EngineAddress(box)"


def test_a_recording_is_sent_as_the_protocol_says() -> None:
    engine = HttpEngine(reply({"text": " Hello.", "language": "english", "duration": 1.0}))
    assert transcribe(engine, key="secret") == Transcription(" Hello.", "english")
    (asked,) = engine.asked
    assert asked.path == SPEECH
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["idempotency-key"] == "run-0"
    assert asked.fields == {
        "file": [b"RIFF"],
        "model": [b"m"],
        "language": [b"ko"],
        "response_format": [b"verbose_json"],
        "timestamp_granularities[]": [b"word", b"segment"],
    }


def test_without_a_key_none_is_sent() -> None:
    engine = HttpEngine(reply({"text": ""}))
    transcribe(engine)
    assert "authorization" not in engine.asked[0].headers


def test_an_engine_on_this_machine_is_called_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert transcribe(HttpEngine(reply({"text": "Hello."}))).text == "Hello."


@pytest.mark.parametrize("status", [300, 301, 304, 400, 404, 429, 500, 503])
def test_a_status_from_300_on_is_named(status: int) -> None:
    assert fault(reply({"error": "secret"}, status)) == f"ASR Engine API error: {status}"


def test_a_redirect_is_not_followed() -> None:
    engine = HttpEngine()
    engine.answer = lambda asked: reply(b"", 307, head=f"location: {engine.url}/elsewhere\r\n")
    with pytest.raises(ServiceFault, match="ASR Engine API error: 307"):
        transcribe(engine)
    assert [asked.path for asked in engine.asked] == [SPEECH]


async def test_the_deadline_is_for_the_whole_call() -> None:
    """An engine that sends a byte now and then is late, too."""

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
    with pytest.raises(ServiceFault) as raised:
        await speech.transcribe(b"", "k")
    await speech.close()
    server.close()
    await asyncio.sleep(0.05)
    assert str(raised.value) == "the speech engine did not answer within 0.1 s"


def test_an_engine_that_never_answers_is_late() -> None:
    assert fault(None, timeout_s=0.05) == "the speech engine did not answer within 0.05 s"


def test_a_connection_that_is_refused_has_a_message() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        message = fault(b"", url=f"http://127.0.0.1:{held.getsockname()[1]}")
    assert "connect" in message.lower()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(b'{"text": "secret', length=100), "without sending complete message body"),
        (reply(b'{"text": "secret'), "gave no usable answer: Input data was truncated"),
        (reply(b"secret"), "gave no usable answer: JSON is malformed"),
        (reply({"unexpected": "secret"}), "gave no usable answer: Object missing required field `text`"),
        (reply({"text": ["secret"]}), "gave no usable answer: Expected `str`, got `array`"),
        (reply(b'{"text": "\xff secret"}'), "gave no usable answer: "),
        (reply(b"[" * 100_000), "gave no usable answer: "),
        (reply(b'{"text": "a", "words": ' + b"[" * 100_000), "gave no usable answer: "),
        (reply({"text": "secret " * 10_000}), "too long"),
        (reply({"text": "", "words": [{"word": "secret"}] * 10_001}), "too long"),
        (reply({"text": "", "segments": [{"words": [{"word": "secret " * 10_000}]}]}), "too long"),
        (b"no HTTP at all\r\n\r\n", "illegal status line"),
        (b"", "disconnected"),
    ],
)
def test_a_cut_or_wrong_body_is_named_and_not_shown(answer: bytes, said: str) -> None:
    message = fault(answer)
    assert said in message
    assert "secret" not in message


def test_a_large_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1000)
    assert fault(reply(b" " * 2000)) == "the answer of the speech engine is larger than 1000 bytes"


def test_a_lone_surrogate_is_no_text() -> None:
    """It could not be written to the log."""
    assert "gave no usable answer" in fault(reply(b'{"text": "\\ud800"}'))


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
def test_a_call_whose_connection_broke_is_made_again(bundled: bool, answers: list[bytes], calls: int | None) -> None:
    """`calls` is None for one that fails at the last answer before the good one."""
    engine = HttpEngine(lambda asked: answers[len(engine.asked) - 1])
    restarts = Restarts() if bundled else None
    if calls is None:
        with pytest.raises(ServiceFault):
            transcribe(engine, restarts=restarts)
        calls = len(answers) - 1
    else:
        assert transcribe(engine, restarts=restarts).text == "Hello."
    assert [asked.headers["idempotency-key"] for asked in engine.asked] == ["run-0"] * calls


async def test_a_request_that_ends_the_bundled_engine_fails_alone() -> None:
    """Calls that a death broke are made again one after the other, also those of other clients of the same engine."""
    in_hand: dict[asyncio.StreamWriter, bytes] = {}
    deaths = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal deaths
        body = (await reader.readuntil(b"\r\n\r\n")) + await reader.read(1 << 16)
        in_hand[writer] = body
        if b"deadly" in body:
            with contextlib.suppress(TimeoutError):
                await until(lambda: len(in_hand) == 3, 0.2 if deaths else 8)
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
    assert str(guilty) == "the speech engine died three times during this request; it is not tried again"
    assert [one for one in innocent if isinstance(one, BaseException)] == []
    assert deaths == DEATHS


async def test_other_engines_have_other_names() -> None:
    async with HttpEngine(reply({}, 502)).running() as engine:
        chat, translation = ChatClient(engine.address()), TranslationClient(engine.address())
        found = []
        for call in (chat.complete("s", "u", "n", {}, "k"), translation.translate(["a"], "auto", "en", "k")):
            with pytest.raises(ServiceFault) as raised:
                await call
            found.append(str(raised.value))
        await chat.close()
        await translation.close()
        assert [asked.path for asked in engine.asked] == ["/v1/chat/completions", "/translate"]
    assert found == ["Caption API error: 502", "Translation API error: 502"]


async def test_calls_are_counted_for_the_operator() -> None:
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
        assert record.error == "ASR Engine API error: 500"
        # Whatever it answers, it is there; the question shows it no key.
        assert await speech.reachable()
        assert "authorization" not in engine.asked[-1].headers
        engine.answer = reply({"text": "hello"})
        await speech.transcribe(b"RIFF", "run-2")
        assert (record.calls, record.failures, record.failing) == (3, 1, False)
        assert record.error == "ASR Engine API error: 500"
        await speech.close()


async def test_an_engine_that_is_gone_or_hangs_is_not_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REACH_SECONDS", 0.1)
    engine = HttpEngine(None)
    async with engine.running():
        hangs = ChatClient(engine.address())
        assert not await hangs.reachable()
        await hangs.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    gone = ChatClient(EngineAddress(url=url, timeout_s=1))
    assert not await gone.reachable()
    await gone.close()


async def test_an_engine_with_as_many_calls_as_may_be_is_not_asked() -> None:
    engine = HttpEngine(None)
    async with engine.running():
        busy = ChatClient(engine.address(limit=1))
        with busy.record.call():
            assert await busy.reachable()
        assert engine.asked == []
        await busy.close()


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    address = EngineAddress(url="https://user:pass@box.example:8443/v1/key-123?token=x", timeout_s=1)
    assert address.origin == "https://box.example:8443"
