"""Engines for tests: they answer at once, or misbehave as configured."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

#: What an engine does instead of answering: a status, or a word.
Fault = int | str
HANG_SECONDS: Final = 120.0

SPEECH: Final = "/v1/audio/transcriptions"
CHAT: Final = "/v1/chat/completions"
TRANSLATE: Final = "/translate"
SPEAKER: Final = "/v1/audio/speech/embedding"


class Quiet(ThreadingHTTPServer):
    """A server that ignores connections broken by killed clients."""

    #: Connections that wait, by default five: more are taken a second later, or three.
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None: ...


class StubEngines:
    """All four protocols on one port."""

    def __init__(self, seed: int = 0) -> None:
        #: What to do with requests of a path: a status, "hang", "cut", "wrong" or "slow"; absent: answer.
        self.faults: dict[str, Fault] = {}
        #: Share of requests that are answered 500, at random.
        self.failing = 0.0
        self.seconds = 0.0
        #: No request is answered while it is not set.
        self.open = threading.Event()
        self.open.set()
        #: The claimed hash of the speaker engine's weights; None for the true one.
        self.sha256: str | None = None
        self.calls: Counter[str] = Counter()
        self.keys: list[str] = []
        #: Requests by size in bytes, which tells recordings of different lengths apart.
        self.sizes: Counter[int] = Counter()
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = Quiet(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> StubEngines:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self.open.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a service that uses these engines."""
        names = ("speech_url", "caption_url", "translation_url", "speaker_url")
        return {**dict.fromkeys(names, self.url), "bundled_engines": "false"}

    def heal(self) -> None:
        """Reset all faults."""
        self.faults.clear()
        self.failing, self.seconds = 0.0, 0.0
        self.sha256 = None

    def fault(self, path: str, size: int) -> Fault | None:
        with self._lock:
            self.sizes[size] += 1
            self.calls[path] += 1
            chosen = self.faults.get(path)
            return chosen if chosen is not None or self._chance.random() >= self.failing else 500

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engines = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                engines.keys.append(self.headers.get("idempotency-key", ""))
                path = self.path
                fault = engines.fault(path, len(body))
                engines.open.wait()
                if engines.seconds:
                    engines._closing.wait(engines.seconds)
                if fault == "hang":
                    engines._closing.wait(HANG_SECONDS)
                    self.close_connection = True
                    return
                if isinstance(fault, int):
                    self.reply(fault, b'{"error":"as told"}', location=f"{engines.url}/elsewhere")
                    return
                answer = engines.answer(path, body, dict(self.headers))
                if fault == "wrong":
                    answer = b'{"unexpected": [1, 2, 3]}'
                if fault == "cut":
                    self.reply(200, answer[: len(answer) // 2], length=len(answer))
                    self.close_connection = True
                    return
                self.reply(200, answer)

            def reply(self, status: int, body: bytes, length: int | None = None, location: str | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body) if length is None else length))
                if location is not None and 300 <= status < 400:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None: ...

        return Handler

    def answer(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        if path == SPEECH:
            return json.dumps(_transcription()).encode()
        if path == CHAT:
            return json.dumps(_completion(json.loads(body))).encode()
        if path == SPEAKER:
            # Loads a model, which most tests do not need.
            from tests.stub_voices import embedding

            return json.dumps(embedding(body, headers, self.sha256)).encode()
        return json.dumps({"translatedText": [f"<{text}>" for text in json.loads(body)["q"]]}).encode()


def _transcription() -> dict[str, Any]:
    words = [{"word": word, "start": 0.2 * place, "end": 0.2 * place + 0.15} for place, word in enumerate(WORDS)]
    segment = {"id": 0, "start": 0.0, "end": words[-1]["end"], "text": " ".join(WORDS)}
    return {"language": "english", "duration": 2.0, "text": segment["text"], "segments": [segment], "words": words}


WORDS: Final = ("ask", "not", "what", "your", "data: can", "do")


def _completion(asked: dict[str, Any]) -> dict[str, Any]:
    name = asked["response_format"]["json_schema"]["name"]
    content: dict[str, Any] = {"caption": "Somebody speaks."}
    if name != "caption":
        content = {
            "contains_speech": True,
            "primary_sound_environment": "a room",
            "situation_summary": "Somebody speaks in a room.",
            "notable_events": ["Speech"],
            "detected_language": "English",
            "speech_content_summary": "A question is turned around.",
            "keywords": ["ask"],
        }
    message = {"role": "assistant", "content": json.dumps(content)}
    return {
        "id": "1",
        "object": "chat.completion",
        "model": "stub",
        "created": int(time.time()),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
