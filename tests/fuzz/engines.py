"""Both ends of the engines' protocols: engines' answers to us, and requests to our bundled engine."""

import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from app.http.bodies import decode
from infra.engines.text.chat import ChatRequest, answer
from infra.engines.text.scene import SceneRequest
from streams.clients.address import EngineAddress
from streams.clients.chat import ChatClient
from streams.clients.embeddings import EmbeddingClient
from streams.clients.transcriptions import TranscriptionClient
from streams.clients.translations import TranslationClient
from tests.stub_engines import _completion, _transcription
from tests.unit.infra.engines.scenes import request
from topics.errors import EarshotError

ADDRESS = EngineAddress(url="http://127.0.0.1:9", timeout_s=1.0)


class Said:
    """Replaces an engine."""

    body = b""

    async def post(self, idempotency_key: str, **request: object) -> bytes:
        return self.body


def answers() -> Callable[[bytes], None]:
    """Return a function that lets every client parse an answer."""
    kinds = TranscriptionClient, ChatClient, EmbeddingClient, TranslationClient
    speech, chat, speaker, translation = (type("Engine", (Said, kind), {})(ADDRESS) for kind in kinds)

    def run(data: bytes) -> None:
        Said.body = data
        schema: Mapping[str, object] = {}
        for call in (
            speech.transcribe(b"", "k"),
            chat.complete("", "", "caption", schema, "k"),
            speaker.embed(b"", "k"),
            translation.translate(["a", "b"], "en", "ko", "k"),
        ):
            with suppress(EarshotError):
                _finish(call)

    return run


def _finish(call: Coroutine[Any, Any, object]) -> None:
    with suppress(StopIteration):
        call.send(None)
        raise AssertionError("it waits for something")


def answer_seeds() -> list[bytes]:
    embedding: dict[str, object] = {"data": [{"embedding": [0.6, 0.8]}], "sha256": "0" * 64}
    embedding |= {"model": "m", "threshold": 0.5, "dimension": 2}
    caption = _completion({"response_format": {"json_schema": {"name": "caption"}}})
    return [json.dumps(one).encode() for one in (_transcription(), caption, embedding, {"translatedText": ["a", "b"]})]


def scenes() -> Callable[[bytes], None]:
    """Return a function that asks the bundled engine for a caption."""
    scene, chat = msgspec.json.Decoder(SceneRequest), msgspec.json.Decoder(ChatRequest)

    def run(data: bytes) -> None:
        with suppress(EarshotError):
            json.loads(answer(decode(scene, data)))
        with suppress(EarshotError):
            decode(chat, data)

    return run


def scene_seeds() -> list[bytes]:
    """Return scenes, and a request around one."""
    turns = (("Speaker 0", 0.5, 2.5, "Who is there?"),)
    first = request(8.0, ("Speech", 0.0, 3.0, 0.9), ("Dog_bark", 2.0, 4.0, 0.8), turns=turns)
    others = msgspec.structs.replace(first, task="audio_insights"), request(0.0)
    scenes = [msgspec.json.encode(one) for one in (first, *others)]
    contents = scenes[0].decode(), [{"type": "text", "text": "a"}]
    messages = [{"role": "user", "content": content} for content in contents]
    return [*scenes, json.dumps({"model": "m", "messages": messages, "stream": False}).encode()]
