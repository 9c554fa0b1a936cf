"""Voices as vectors: `POST /v1/audio/speech/embedding` as speaches has it, and `POST /v1/embeddings` as OpenAI does.

Protocols: https://github.com/speaches-ai/speaches (`routers/speech_embedding.py`) takes a form with `file` and `model`;
https://platform.openai.com/docs/api-reference/embeddings/create takes JSON, whose `input` here is recordings in base64.
Both answer alike. The fields `sha256`, `threshold`, `threshold_per_doubling` and `dimension` are ours: which weights
made the vectors, from which cosine with the mean direction of somebody's samples a voice is theirs where ten people are
registered, how much that rises where they are twice as many, and how long the vectors are.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.http.bodies import decode
from infra.engines import SPEAKER_MODEL, uploads
from infra.engines.errors import check_model
from infra.engines.places import Places
from topics.errors import BadRequest

if TYPE_CHECKING:
    from streams.models.protocol import Floats

#: ONNX Runtime and the decoder leave the interpreter to others, so threads use cores.
THREADS: Final = 2
WAITING: Final = 16
RETRY_S: Final = 1
#: Of a JSON body, which is whole in memory.
MOST_BYTES: Final = 16 * 1024 * 1024


class Asked(msgspec.Struct, frozen=True):
    """The body of OpenAI's protocol."""

    input: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=32)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"


_asked: Final = msgspec.json.Decoder(Asked)


class Embeddings:
    """Both endpoints, over a few threads and a short queue before them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "embeddings")
        self._places = Places(THREADS + WAITING, "speaker", RETRY_S)

    async def of_form(self, request: Request) -> Response:
        """Answer speaches' protocol.

        Raises:
            EarshotError: named by `infra.engines.errors`.
        """
        with self._places.place():
            async with uploads.form(request) as (form, file):
                check_model(form.get("model"), SPEAKER_MODEL)
                return await self._answer([file], "float")

    async def of_json(self, request: Request) -> Response:
        """Answer OpenAI's protocol; errors as `of_form`."""
        with self._places.place():
            embedding_request = decode(_asked, await uploads.body(request, MOST_BYTES))
            check_model(embedding_request.model, SPEAKER_MODEL)
            inputs = (embedding_request.input,) if isinstance(embedding_request.input, str) else embedding_request.input
            try:
                files = [io.BytesIO(base64.b64decode(text, validate=True)) for text in inputs]
            except ValueError:
                raise BadRequest("input: not base64; recordings in base64 are taken, one or a list") from None
            return await self._answer(files, embedding_request.encoding_format)

    async def _answer(self, files: Sequence[BinaryIO], form: str) -> Response:
        # A request that is cancelled, as one is when the server stops, leaves the queue of the threads.
        body = await asyncio.get_running_loop().run_in_executor(self._threads, _embedded, files, form)
        return Response(msgspec.json.encode(body), media_type="application/json")


def _embedded(files: Sequence[BinaryIO], form: str) -> dict[str, Any]:
    # Loaded with the first voice: most who start this server never send one.
    from infra.engines import embedder

    rows = [
        {"object": "embedding", "index": number, "embedding": _numbers(embedder.embed(file), form)}
        for number, file in enumerate(files)
    ]
    manifest = embedder.bundled().manifest
    return {
        "object": "list",
        "data": rows,
        "model": manifest.model_id,
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
        "sha256": manifest.graph.sha256,
        "threshold": manifest.identification_settings.threshold,
        "threshold_per_doubling": manifest.identification_settings.per_doubling,
        "dimension": manifest.dimension,
    }


def _numbers(vector: Floats, form: str) -> list[float] | str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if form == "base64" else vector.tolist()
