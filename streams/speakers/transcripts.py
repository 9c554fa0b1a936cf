"""What is said in a recording whose speakers are looked for, as far as a speech engine tells in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from streams.audio import wav
from streams.clients.transcriptions import TranscriptionClient
from streams.models.protocol import Floats
from streams.services import pieces, words
from streams.services.pieces import Piece
from streams.services.words import Unit
from streams.speakers.listener import Listener, blocks
from streams.voice.activity import RATE, SileroDetector
from topics.errors import EngineAway, ServiceFault
from topics.keys import new_id

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Writer(msgspec.Struct, frozen=True):
    """Writes down speech piece by piece."""

    engine: TranscriptionClient
    #: Length of a piece, at most.
    piece_s: float

    async def units(self, listener: Listener, samples: Floats, ear: SileroDetector) -> list[Unit]:
        """Return what is said in float32[n] at 16 kHz, in order of time; speech is where `ear` hears it.

        What the engine does not answer, or not within its deadline for one call, is missing.
        """
        found: dict[int, list[Unit]] = {}
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(self.engine.address.timeout_s):
                for number, piece in enumerate(await listener.run(self._pieces, samples, ear)):
                    tasks.append(asyncio.create_task(self._ask(samples, piece, number, found)))
                await asyncio.gather(*tasks)
        except (TimeoutError, EngineAway) as error:
            log.warning("recognition.transcript", error=str(error) or "the speech engine is late")
        finally:
            for task in tasks:
                task.cancel()
        return [unit for number in sorted(found) for unit in found[number]]

    def _pieces(self, samples: Floats, ear: SileroDetector) -> Sequence[Piece]:
        segments = ear.segments(blocks(samples), pieces.activity(self.piece_s))
        return list(pieces.pieces(segments, self.piece_s))

    async def _ask(self, samples: Floats, piece: Piece, number: int, found: dict[int, list[Unit]]) -> None:
        async with self.engine.places:
            cut = samples[piece.start_ms * RATE // 1000 : piece.end_ms * RATE // 1000]
            data = await asyncio.to_thread(lambda: wav.wav_file(wav.to_pcm16(cut), RATE))
            try:
                answer = await self.engine.transcribe(data, new_id(), model=self.engine.address.model)
            except ServiceFault as error:
                log.warning("recognition.transcript", error=str(error))
                return
        found[number] = words.units(answer, piece, by_word=True)
