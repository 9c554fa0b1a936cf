"""The speaker engine for enrolment and recognition: turns voices into vectors and reports the current model."""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from streams.audio import wav
from streams.clients.embeddings import EmbeddingClient, EmbeddingModel, VoiceEmbedding
from streams.models.protocol import Floats
from streams.voice.speaker_manifest import REGISTERED
from streams.voice.speech_segments import RATE
from topics.errors import EngineAway, ServiceFault
from topics.keys import new_id

#: Cosine from which two voices are one, if neither the deployment nor the engine sets it.
DEFAULT_THRESHOLD: Final = 0.5
#: How long `model` waits for the engine, and how long before it retries an engine that did not answer.
ASK_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 60.0
#: Embedded to learn the model's name: a constant tone of one second.
TONE: Final = (np.sin(np.arange(RATE) * (2 * np.pi * 220 / RATE)) / 4).astype(np.float32)


class VoiceEmbedder:
    """Calls the speaker engine, and remembers which model answered. Loop only."""

    def __init__(
        self, engine: EmbeddingClient, model: EmbeddingModel | None = None, threshold: float | None = None
    ) -> None:
        """Use `engine`; `model` is its model if known, and `threshold` overrides the engine's own."""
        self._engine = engine
        self._model = model
        self._threshold = threshold
        self._asking = asyncio.Lock()
        self._ask_at = 0.0

    async def close(self) -> None:
        await self._engine.close()

    async def embed(self, voice: Floats | bytes) -> VoiceEmbedding:
        """Return the vector of float32[n] at 16 kHz, or of a WAV file.

        Raises:
            EngineAway: once called, the engine does not answer in time with a vector.
        """
        try:
            async with self._engine.slots, asyncio.timeout(self._engine.address.timeout_s):
                data = voice if isinstance(voice, bytes) else await asyncio.to_thread(wav.encode, voice, RATE)
                embedding = await self._engine.embed(data, new_id())
        except ServiceFault as error:
            raise EngineAway(str(error)) from error
        except TimeoutError as error:
            seconds = self._engine.address.timeout_s
            raise EngineAway(f"the speaker engine did not answer within {seconds:g} s") from error
        self._model = embedding.model
        return embedding

    async def embed_all(self, voices: Sequence[Floats]) -> list[VoiceEmbedding]:
        """Return the vectors of several voices, float32[n] at 16 kHz each.

        Raises:
            EngineAway: for one of them, the engine does not answer in time with a vector.
        """
        tasks = [asyncio.create_task(self.embed(voice)) for voice in voices]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def threshold(self, voice: VoiceEmbedding, registered: int) -> float:
        """Return the cosine from which a voice counts as one of `registered` speakers."""
        if self._threshold is not None:
            return self._threshold
        if voice.threshold is None:
            return DEFAULT_THRESHOLD
        return voice.threshold + voice.per_doubling * math.log2(max(1, registered) / REGISTERED)

    async def fetch_model(self) -> EmbeddingModel:
        """Query the engine for its current model.

        Raises:
            EngineAway: it does not answer.
        """
        return (await self.embed(TONE)).model

    async def model(self) -> EmbeddingModel | None:
        """Return the model that last answered; if none has, query the engine, and return None if it does not answer."""
        if self._model is not None:
            return self._model
        async with self._asking:
            if self._model is None and time.monotonic() >= self._ask_at:
                try:
                    async with asyncio.timeout(ASK_SECONDS):
                        return await self.fetch_model()
                except (TimeoutError, EngineAway):
                    self._ask_at = time.monotonic() + AGAIN_SECONDS
        return self._model
