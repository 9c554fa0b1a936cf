"""Transcribes recordings during recognition, if a speech engine answers in time."""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from streams.audio import wav
from streams.clients.transcriptions import TranscriptionClient
from streams.models.protocol import Floats
from streams.services import timed_text
from streams.services.speech_pieces import SpeechPiece, cut_speech, detector_settings
from streams.services.timed_text import TimedText
from streams.speakers.recording_reader import RecordingReader, split_seconds
from streams.voice.activity import VoiceActivityDetector
from streams.voice.speech_segments import RATE
from topics.errors import EngineAway, ServiceFault
from topics.keys import new_id

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Transcriber(msgspec.Struct, frozen=True):
    """Transcribes speech piece by piece."""

    engine: TranscriptionClient
    #: Maximum length of a piece, in seconds.
    piece_s: float

    async def texts(self, reader: RecordingReader, samples: Floats, detector: VoiceActivityDetector) -> list[TimedText]:
        """Return the words of float32[n] at 16 kHz, in order of time; `detector` finds the pieces.

        Pieces for which the engine fails, or exceeds its time limit for one call, are left out.
        """
        texts: dict[int, list[TimedText]] = {}
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(self.engine.address.timeout_s):
                for number, piece in enumerate(await reader.run(self._pieces, samples, detector)):
                    tasks.append(asyncio.create_task(self._transcribe(samples, piece, number, texts)))
                await asyncio.gather(*tasks)
        except (TimeoutError, EngineAway) as error:
            log.warning("recognition.transcript", error=str(error) or "the speech engine is late")
        finally:
            for task in tasks:
                task.cancel()
        return [text for number in sorted(texts) for text in texts[number]]

    def _pieces(self, samples: Floats, detector: VoiceActivityDetector) -> Sequence[SpeechPiece]:
        segments = detector.segments(split_seconds(samples), detector_settings(self.piece_s))
        return list(cut_speech(segments, self.piece_s))

    async def _transcribe(
        self, samples: Floats, piece: SpeechPiece, number: int, texts: dict[int, list[TimedText]]
    ) -> None:
        async with self.engine.slots:
            stretch = samples[piece.start_ms * RATE // 1000 : piece.end_ms * RATE // 1000]
            data = await asyncio.to_thread(wav.encode, stretch, RATE)
            try:
                answer = await self.engine.transcribe(data, new_id(), model=self.engine.address.model)
            except ServiceFault as error:
                log.warning("recognition.transcript", error=str(error))
                return
        texts[number] = timed_text.timed_texts(answer, piece, by_word=True)
