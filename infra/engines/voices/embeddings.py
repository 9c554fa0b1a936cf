"""Speaker embeddings: `POST /v1/audio/speech/embedding` in speaches' protocol, `POST /v1/embeddings` in OpenAI's.

Protocols: https://github.com/speaches-ai/speaches (`routers/speech_embedding.py`) takes a form with `file` and `model`;
https://platform.openai.com/docs/api-reference/embeddings/create takes JSON, whose `input` here is recordings in base64.
Both answer alike. Four fields are ours. `sha256` identifies the weights that made the vectors. `threshold` is the least
cosine between a voice and the mean direction of a speaker's samples that identifies the speaker, with ten registered.
`threshold_per_doubling` is its rise when their number doubles. `dimension` is the length of a vector.
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
from infra.engines.admission import AdmissionLimit
from infra.engines.errors import check_model
from topics.errors import BadRequest

if TYPE_CHECKING:
    from streams.models.protocol import Floats

#: ONNX Runtime and the decoder release the interpreter's lock, so threads use several cores.
THREADS: Final = 2
WAITING: Final = 16
RETRY_S: Final = 1
#: The longest JSON body, which is held in memory as a whole.
MOST_BYTES: Final = 16 * 1024 * 1024


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The body of a request in OpenAI's protocol."""

    input: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=32)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"


_request_decoder: Final = msgspec.json.Decoder(EmbeddingRequest)


class Embeddings:
    """Both endpoints, with a few threads and a short queue."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "embeddings")
        self._admission = AdmissionLimit(THREADS + WAITING, "speaker", RETRY_S)

    async def answer_form(self, request: Request) -> Response:
        """Answer a form in speaches' protocol.

        Raises:
            AudioError: the recording cannot be decoded, or is too short or too long.
            BadRequest: the form has no recording, or did not arrive whole and in time.
            EngineError: the model is missing or failed.
            TooLarge: the form is too long.
            Unavailable: all slots are taken.
            UnknownModel: it names another model.
        """
        with self._admission.slot():
            async with uploads.form(request) as (form, file):
                check_model(form.get("model"), SPEAKER_MODEL)
                return await self._answer([file], "float")

    async def answer_json(self, request: Request) -> Response:
        """Answer JSON in OpenAI's protocol, whose `input` is one or several recordings in base64.

        Raises:
            AudioError: a recording cannot be decoded, or is too short or too long.
            BadRequest: the body is not such JSON, or a recording is not base64.
            EngineError: the model is missing or failed.
            TooLarge: the body is longer than MOST_BYTES.
            Unavailable: all slots are taken, or the client hung up.
            UnknownModel: it names another model.
        """
        with self._admission.slot():
            embedding_request = decode(_request_decoder, await uploads.body(request, MOST_BYTES))
            check_model(embedding_request.model, SPEAKER_MODEL)
            inputs = (embedding_request.input,) if isinstance(embedding_request.input, str) else embedding_request.input
            try:
                files = [io.BytesIO(base64.b64decode(text, validate=True)) for text in inputs]
            except ValueError:
                raise BadRequest("input: not base64; send a recording in base64, or a list") from None
            return await self._answer(files, embedding_request.encoding_format)

    async def _answer(self, files: Sequence[BinaryIO], form: str) -> Response:
        # A cancelled request, for example at a stop of the server, leaves the queue of the threads.
        body = await asyncio.get_running_loop().run_in_executor(self._threads, _response_body, files, form)
        return Response(msgspec.json.encode(body), media_type="application/json")


def _response_body(files: Sequence[BinaryIO], form: str) -> dict[str, Any]:
    # Imported with the first voice: most installations never receive one.
    from infra.engines.voices import voice_embedding

    rows = [
        {"object": "embedding", "index": number, "embedding": _encode_vector(voice_embedding.embed(file), form)}
        for number, file in enumerate(files)
    ]
    manifest = voice_embedding.bundled_engine().manifest
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


def _encode_vector(vector: Floats, form: str) -> list[float] | str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if form == "base64" else vector.tolist()
