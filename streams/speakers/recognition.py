"""Recognition: separates speakers in process and identifies them by the vectors of their longest turns."""

import asyncio
from collections.abc import Sequence

from streams.admission import AdmissionSemaphore
from streams.models.protocol import Floats
from streams.services import timed_text
from streams.speakers.identification import SpeakerIdentification, long_enough
from streams.speakers.matching import names_of
from streams.speakers.recording_reader import RecordingReader, split_seconds
from streams.speakers.speaker_store import SpeakerStore
from streams.speakers.transcriber import Transcriber
from streams.voice import loudness as levels
from streams.voice.activity import CachedDetector, VoiceActivityDetector
from streams.voice.diarization import diarize, lengthen_turns
from streams.voice.excerpts import excerpts
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speech_segments import RATE
from topics.ports.speakers import SpeakerTurn


class Recognition:
    """Recognises registered speakers in recordings. Loop only."""

    def __init__(
        self,
        store: SpeakerStore,
        reader: RecordingReader,
        identification: SpeakerIdentification,
        speakers: SpeakerEngine,
        transcriber: Transcriber | None,
        admission: AdmissionSemaphore,
    ) -> None:
        """Separate speakers with `speakers`; without a `transcriber`, transcripts are empty."""
        self._store = store
        self._reader = reader
        self._identification = identification
        self._speakers = speakers
        self._transcriber = transcriber
        self._admission = admission

    async def recognize(self, organization: str, file: int) -> list[SpeakerTurn]:
        async with self._admission.admit():
            probe, speakers = await asyncio.gather(self._reader.probe(file), self._store.enrolled(organization))
            samples = await self._reader.run(levels.levelled, await self._reader.samples(file, probe))
            detector = await self._reader.run(lambda: CachedDetector(self._reader.detector))
            transcription = asyncio.create_task(self._texts(samples, detector))
            try:
                turns = await self._reader.run(diarize, split_seconds(samples), self._speakers, detector)
                voices = excerpts(turns, lambda first, end: samples[first:end])
                matches = await self._identification.matches(speakers, voices)
                turns = lengthen_turns(turns, len(samples) / RATE, timed_text.PAUSE_MS / 1000)
                texts = timed_text.turn_texts(await transcription if turns else [], turns)
            finally:
                transcription.cancel()
                await asyncio.gather(transcription, return_exceptions=True)
        names = names_of(matches)
        return [
            SpeakerTurn(
                start_ms=round(turn.start_s * 1000),
                end_ms=round(turn.end_s * 1000),
                transcript=text,
                speaker=turn.speaker,
                name=names[turn.speaker],
                score=matches[turn.speaker].score,
                known=matches[turn.speaker].name is not None,
                unlabeled=not long_enough(voices[turn.speaker]),
            )
            for turn, text in zip(turns, texts, strict=True)
        ]

    async def _texts(self, samples: Floats, detector: VoiceActivityDetector) -> Sequence[timed_text.TimedText]:
        return [] if self._transcriber is None else await self._transcriber.texts(self._reader, samples, detector)
