"""Speaker engines: `POST /v1/audio/speech/embedding` as speaches has it (https://speaches.ai), with three more fields.

The bundled server tells the SHA-256 of the model's weights, from which cosine on a voice is that of one of ten
registered speakers, and how much that rises where twice as many are registered.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from streams.clients.chat import MAX_NAME_CHARACTERS
from streams.clients.client import EngineClient
from streams.models.protocol import Floats
from streams.speakers.roster import EmbeddingModel

#: As manifests have it.
MAX_DIMENSION: Final = 8192


class EmbeddingVector(msgspec.Struct, frozen=True):
    """A vector, of any length but zero."""

    embedding: Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=MAX_DIMENSION)]


class EmbeddingsAnswer(msgspec.Struct, frozen=True):
    """The answer, of whose vectors the first is that of the recording."""

    data: Annotated[tuple[EmbeddingVector, ...], msgspec.Meta(min_length=1)]
    model: str | None = None
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    threshold: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None
    threshold_per_doubling: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class VoiceEmbedding(msgspec.Struct, frozen=True):
    """A voice, as one model knows it."""

    #: Unit vector, float32[dimension].
    vector: Floats
    model: EmbeddingModel
    #: Cosine from which it is one of ten registered speakers, None where the engine does not tell.
    threshold: float | None = None
    per_doubling: float = 0.0


_decoder: Final = msgspec.json.Decoder(EmbeddingsAnswer)


class EmbeddingClient(EngineClient):
    """A server that turns a voice into a vector."""

    path: ClassVar = "/v1/audio/speech/embedding"
    name: ClassVar = "speaker"
    label: ClassVar = "Speaker"

    async def embed(self, wav: bytes, idempotency_key: str) -> VoiceEmbedding:
        """Return the direction in which recordings of the voice in a WAV file point.

        Raises:
            ServiceFault: see `EngineClient.post`; or the answer holds no vector, or one without a direction.
        """
        model = self.address.model
        fields: dict[str, str | list[str]] = {} if model is None else {"model": model}
        body = await self.post(idempotency_key, fields=fields, file=("voice.wav", wav, "audio/wav"))
        found = self.decoded(_decoder, body)
        numbers = np.array(found.data[0].embedding)
        with np.errstate(over="ignore"):
            length = np.linalg.norm(numbers)
        if not (np.isfinite(length) and length > 0):
            raise self.unusable(f"its vector has the length {length}")
        name = (found.model or model or "default")[:MAX_NAME_CHARACTERS]
        # An engine that does not tell its weights is known by what it can tell.
        weights = found.sha256 or hashlib.sha256(f"{name}:{len(numbers)}".encode()).hexdigest()
        vector = (numbers / length).astype(np.float32)
        return VoiceEmbedding(vector, EmbeddingModel(name, weights), found.threshold, found.threshold_per_doubling)
