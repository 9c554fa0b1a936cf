"""The client of speaker engines: what it sends, what it makes of answers, and which are none."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from streams.clients.embeddings import MAX_DIMENSION, EmbeddingClient, EmbeddingModel, VoiceEmbedding
from tests.unit.streams.clients.http_engine import HttpEngine, reply
from topics.errors import ServiceFault

SHA256 = "ab" * 32


def embed(engine: HttpEngine, **address: Any) -> VoiceEmbedding:
    found: VoiceEmbedding = engine.serve(
        lambda: EmbeddingClient(engine.address(**address)), lambda client: client.embed(b"RIFF", "a-key")
    )
    return found


def answer(vector: object, **told: object) -> bytes:
    return reply({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}], **told})


def test_a_voice_is_sent_as_the_protocol_says() -> None:
    told: dict[str, Any] = {"threshold": 0.25, "threshold_per_doubling": 0.02, "usage": {"total_tokens": 0}}
    engine = HttpEngine(answer([3, 4.0], model="mini", sha256=SHA256, **told))
    found = embed(engine, model="mini", key="secret")
    assert found.vector.dtype == np.float32
    assert found.vector.tolist() == pytest.approx([0.6, 0.8])
    assert (found.model, found.threshold, found.per_doubling) == (EmbeddingModel("mini", SHA256), 0.25, 0.02)
    (asked,) = engine.asked
    assert asked.path == "/v1/audio/speech/embedding"
    assert asked.fields == {"file": [b"RIFF"], "model": [b"mini"]}
    assert (asked.headers["idempotency-key"], asked.headers["authorization"]) == ("a-key", "Bearer secret")


@pytest.mark.parametrize(
    ("told", "asked", "name"), [({"model": "own"}, None, "own"), ({}, "mine", "mine"), ({}, None, "default")]
)
def test_an_engine_that_tells_no_weights_is_known_by_name_and_dimension(
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
def test_an_answer_without_a_direction_is_none(told: bytes) -> None:
    with pytest.raises(ServiceFault, match="the speaker engine gave no usable answer"):
        embed(HttpEngine(told))


def test_a_failure_is_named() -> None:
    with pytest.raises(ServiceFault, match=r"^Speaker API error: 503$"):
        embed(HttpEngine(reply({}, 503)))
    with pytest.raises(ServiceFault, match=r"speaker engine did not answer within 0\.05 s"):
        embed(HttpEngine(None), timeout_s=0.05)
