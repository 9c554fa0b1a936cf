"""Voices as vectors over both protocols, with the bundled model."""

import asyncio
import base64
import threading
from pathlib import Path

import httpx2
import numpy as np
import pytest
from structlog.testing import capture_logs

from infra import models
from infra.engines import SPEAKER_MODEL, uploads
from infra.engines.admission import AdmissionLimit
from infra.engines.server import create_app
from infra.engines.speech.speech_models import SpeechModels, SpeechSettings
from infra.engines.voices import embeddings, voice_embedding
from streams.models.protocol import Floats
from streams.voice import speaker_manifest as manifest
from tests.audio import RATE, encoded, noise
from tests.waiting import until

FORM = "/v1/audio/speech/embedding"
JSON = "/v1/embeddings"


@pytest.fixture
def client() -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(SpeechModels(SpeechSettings())), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://engines")


async def embedded(client: httpx2.AsyncClient, audio: bytes, **fields: object) -> httpx2.Response:
    return await client.post(FORM, files={"file": ("a", audio)}, data=fields)


async def test_form_request_returns_vector_and_model(client: httpx2.AsyncClient) -> None:
    known = manifest.read(models.directory(models.SPEAKERS))
    body = (await embedded(client, encoded(noise(RATE), subtype="FLOAT"), model=SPEAKER_MODEL)).json()
    (row,) = body.pop("data")
    assert body == {
        "object": "list",
        "model": known.model_id,
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
        "sha256": known.graph.sha256,
        "threshold": known.identification_settings.threshold,
        "threshold_per_doubling": known.identification_settings.per_doubling,
        "dimension": known.dimension,
    }
    assert (row["object"], row["index"]) == ("embedding", 0)
    # Identical bits: JSON does not change a vector.
    assert (np.array(row["embedding"], np.float32) == voice_embedding.bundled_engine().embed(noise(RATE))).all()


async def test_openai_request_returns_floats_or_base64(
    client: httpx2.AsyncClient,
) -> None:
    given = [base64.b64encode(encoded(noise(round(0.6 * RATE), seed), subtype="FLOAT")).decode() for seed in (1, 2)]
    rows = (await client.post(JSON, json={"input": given, "model": SPEAKER_MODEL})).json()["data"]
    assert [row["index"] for row in rows] == [0, 1]
    assert rows[0]["embedding"] != rows[1]["embedding"]
    packed = await client.post(JSON, json={"input": given[1], "encoding_format": "base64"})
    (row,) = packed.json()["data"]
    assert np.frombuffer(base64.b64decode(row["embedding"]), "<f4").tolist() == rows[1]["embedding"]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 400, "input: required"),
        ({"input": []}, 400, "input"),
        ({"input": "a voice"}, 400, "input: not base64"),
        ({"input": "bm8gYXVkaW8="}, 400, "not a supported audio file"),
        ({"input": "", "model": "text-embedding-3-small"}, 404, "text-embedding-3-small"),
        ({"input": "", "encoding_format": "hex"}, 400, "encoding_format"),
    ],
)
async def test_invalid_json_request_is_rejected_with_reason(
    body: object, status: int, named: str, client: httpx2.AsyncClient
) -> None:
    answer = await client.post(JSON, json=body)
    assert answer.status_code == status
    assert named in answer.json()["error"]["message"]


async def test_invalid_form_request_is_rejected_in_openai_format(client: httpx2.AsyncClient) -> None:
    short = await embedded(client, encoded(noise(round(0.25 * RATE)), subtype="FLOAT"))
    assert (short.status_code, short.json()["error"]["code"]) == (400, "invalid_audio")
    assert "0.25 s of audio" in short.json()["error"]["message"]
    assert (await embedded(client, b"no audio at all" * 10)).json()["error"]["code"] == "invalid_audio"
    assert (await embedded(client, encoded(noise(RATE), subtype="FLOAT"), model="ecapa")).status_code == 404
    assert (await client.post(FORM, data={"model": SPEAKER_MODEL})).status_code == 400
    assert (await client.post(FORM, content=b"x")).status_code == 400
    for path, most in ((FORM, uploads.MOST_BYTES), (JSON, embeddings.MOST_BYTES)):
        long = await client.post(path, headers={"content-length": str(most + 1)}, content=b"x")
        assert long.status_code == 413


async def test_missing_model_is_logged(
    client: httpx2.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "directory", lambda _: tmp_path)
    voice_embedding.bundled_engine.cache_clear()
    with capture_logs() as logs:
        answer = await embedded(client, encoded(noise(RATE), subtype="FLOAT"))
    assert answer.status_code == 500
    ((event, error),) = [(line["event"], line["error"]) for line in logs]
    assert event == "speaker.unusable"
    assert str(tmp_path) in error


async def test_full_queue_returns_503(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    admission, free = AdmissionLimit(embeddings.THREADS + embeddings.WAITING, "speaker", 1), threading.Event()
    monkeypatch.setattr(embeddings, "AdmissionLimit", lambda *_: admission)
    client: httpx2.AsyncClient = request.getfixturevalue("client")

    def embed(file: object) -> Floats:
        assert free.wait(60)
        return noise(round(0.01 * RATE))

    monkeypatch.setattr(voice_embedding, "embed", embed)
    first = [asyncio.create_task(embedded(client, b"x")) for _ in range(embeddings.THREADS + embeddings.WAITING)]
    await until(lambda: admission.inside == len(first))
    late = await embedded(client, b"x")
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    # Clients that hang up leave the queue, although threads finish their current work.
    first[-1].cancel()
    await asyncio.gather(first[-1], return_exceptions=True)
    again = asyncio.create_task(embedded(client, b"x"))
    await until(lambda: admission.inside == len(first))
    free.set()
    answers = await asyncio.gather(*first[:-1], again)
    assert {answer.status_code for answer in answers} == {200}
