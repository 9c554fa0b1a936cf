"""The speaker engine as enrolment and recognition see it: voices in, vectors out, and which model makes them now."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from streams.audio import wav
from streams.clients.embeddings import EmbeddingClient, VoiceEmbedding
from streams.models.protocol import Floats
from streams.speakers.roster import EmbeddingModel
from streams.voice.activity import RATE
from streams.voice.manifest import REGISTERED
from topics.errors import EngineAway, ServiceFault
from topics.keys import new_id

#: Where neither the deployment nor the engine says from which cosine on two voices are one.
THRESHOLD: Final = 0.5
#: Who only wants to know the model waits so long for it, and so long until it is asked for again.
ASK_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 60.0
#: What is sent to learn the model: a second of a tone, the same each time.
TONE: Final = (np.sin(np.arange(RATE) * (2 * np.pi * 220 / RATE)) / 4).astype(np.float32)


class Voiceprints:
    """Asks the engine, and remembers what its answers say of its model."""

    def __init__(
        self, engine: EmbeddingClient, model: EmbeddingModel | None = None, threshold: float | None = None
    ) -> None:
        """Use `engine`, whose model may be known already; a `threshold` of the deployment goes before the engine's."""
        self._engine = engine
        self._model = model
        self._threshold = threshold
        self._asking = asyncio.Lock()
        self._ask_at = 0.0

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.close()

    async def embed(self, voice: Floats | bytes) -> VoiceEmbedding:
        """Return the vector of float32[n] at 16 kHz, or of a WAV file.

        Raises:
            EngineAway: the engine does not answer, or not in time, or not with a vector.
        """
        try:
            async with asyncio.timeout(self._engine.address.timeout_s), self._engine.places:
                data = voice if isinstance(voice, bytes) else await asyncio.to_thread(_wav, voice)
                found = await self._engine.embed(data, new_id())
        except ServiceFault as error:
            raise EngineAway(str(error)) from error
        except TimeoutError as error:
            seconds = self._engine.address.timeout_s
            raise EngineAway(f"the speaker engine did not answer within {seconds:g} s") from error
        self._model = found.model
        return found

    async def embed_all(self, voices: Sequence[Floats]) -> list[VoiceEmbedding]:
        """Return the vectors of several voices, or none of them; see `embed`."""
        tasks = [asyncio.create_task(self.embed(voice)) for voice in voices]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def threshold(self, voice: VoiceEmbedding, registered: int) -> float:
        """Return the cosine from which on a voice is that of one of so many registered speakers."""
        if self._threshold is not None:
            return self._threshold
        if voice.threshold is None:
            return THRESHOLD
        return voice.threshold + voice.per_doubling * math.log2(max(1, registered) / REGISTERED)

    async def ask(self) -> EmbeddingModel:
        """Return the model in use, as the engine says now.

        Raises:
            EngineAway: it does not answer.
        """
        return (await self.embed(TONE)).model

    async def model(self) -> EmbeddingModel | None:
        """Return the model in use as far as it is known, None where the engine does not tell it for now."""
        if self._model is not None:
            return self._model
        async with self._asking:
            if self._model is None and time.monotonic() >= self._ask_at:
                try:
                    async with asyncio.timeout(ASK_SECONDS):
                        return await self.ask()
                except (TimeoutError, EngineAway):
                    self._ask_at = time.monotonic() + AGAIN_SECONDS
        return self._model


def _wav(samples: Floats) -> bytes:
    return wav.wav_file(wav.to_pcm16(samples), RATE)
