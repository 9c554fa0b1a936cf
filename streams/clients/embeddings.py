"""Speaker engines: `POST /v1/audio/speech/embedding` of speaches (https://speaches.ai), with three more fields.

The bundled server also returns the SHA-256 of the model's weights, the cosine threshold for matching a voice with one
of ten registered speakers, and its rise with each doubling of their number.
"""

import hashlib
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from streams.clients.chat import MAX_NAME_CHARACTERS
from streams.clients.client import EngineClient
from streams.models.protocol import Floats

#: The largest dimension that manifests of speaker models allow.
MAX_DIMENSION: Final = 8192


class EmbeddingVector(msgspec.Struct, frozen=True):
    """A vector of any length except zero."""

    embedding: Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=MAX_DIMENSION)]


class EmbeddingsAnswer(msgspec.Struct, frozen=True):
    """The answer; its first vector is the recording's."""

    data: Annotated[tuple[EmbeddingVector, ...], msgspec.Meta(min_length=1)]
    model: str | None = None
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    threshold: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None
    threshold_per_doubling: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class EmbeddingModel(msgspec.Struct, frozen=True):
    """The model that computed a vector; only vectors of equal models can be compared."""

    name: str
    #: SHA-256 of its weights in hex, or of its name and dimension if the engine does not send it.
    sha256: str


class VoiceEmbedding(msgspec.Struct, frozen=True):
    """The vector that a model computed for a voice."""

    #: Unit vector, float32[dimension].
    vector: Floats
    model: EmbeddingModel
    #: Cosine threshold for a match with one of ten registered speakers; None if the engine does not send it.
    threshold: float | None = None
    #: Rise of the threshold with each doubling of the registered speakers.
    per_doubling: float = 0.0


_decoder: Final = msgspec.json.Decoder(EmbeddingsAnswer)


class EmbeddingClient(EngineClient):
    """Calls a server that computes the vector of a voice. Loop only."""

    path: ClassVar = "/v1/audio/speech/embedding"
    name: ClassVar = "speaker"
    label: ClassVar = "Speaker"

    async def embed(self, wav: bytes, idempotency_key: str) -> VoiceEmbedding:
        """Return the unit vector of the voice in a WAV file.

        Raises:
            ServiceFault: as in `post`, or the answer has no vector or a zero or infinite one.
        """
        model = self.address.model
        fields: dict[str, str | list[str]] = {} if model is None else {"model": model}
        answer = self.decode(
            _decoder, await self.post(idempotency_key, fields=fields, file=("voice.wav", wav, "audio/wav"))
        )
        numbers = np.array(answer.data[0].embedding)
        with np.errstate(over="ignore"):
            length = np.linalg.norm(numbers)
        if not (np.isfinite(length) and length > 0):
            raise self.unusable_answer(f"its vector has the length {length}")
        name = (answer.model or model or "default")[:MAX_NAME_CHARACTERS]
        # An engine that does not send the hash of its weights is identified by name and dimension.
        weights = answer.sha256 or hashlib.sha256(f"{name}:{len(numbers)}".encode()).hexdigest()
        vector = (numbers / length).astype(np.float32)
        return VoiceEmbedding(vector, EmbeddingModel(name, weights), answer.threshold, answer.threshold_per_doubling)
